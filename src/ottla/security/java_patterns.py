"""Patterns and replacements of Kafka's rules, in RE2: its time grows with the length of a text only. PURE.

Patterns are Java's as far as RE2 knows them: lookahead and back references are refused. Replacements are in Java's
form: `$1` for a group, a backslash before what stands for itself.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.errors import InvalidConfig

MOST_PATTERN_BYTES: Final = 1 << 20
"""What a compiled pattern may occupy."""
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)
_LINE_ENDS: Final = frozenset("\n\r\x85\u2028\u2029")
"""What a dot of Java's patterns does not match; no pattern matches a text with one of them here."""


class Substitution(NamedTuple):
    """A pattern, and what replaces what it matches."""

    pattern: Any
    """An `re2` pattern."""
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""

    def apply(self, text: str, *, once: bool = False) -> str:
        """As Java's `replaceAll`, or `replaceFirst`."""
        done: list[str] = []
        end = 0
        for found in self.pattern.finditer(text):
            done.append(text[end : found.start()])
            done += [part if isinstance(part, str) else found.group(part) or "" for part in self.replacement]
            end = found.end()
            if once:
                break
        return "".join((*done, text[end:]))


def compiled(setting: str, pattern: str) -> Any:
    """An `re2` pattern. Raises `InvalidConfig`, which names the setting."""
    import re2  # only a broker with such rules pays for it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise refused(
            setting, pattern, f"not a pattern of RE2 (which has no lookahead or back references): {error}"
        ) from error


def matches(pattern: Any, text: str) -> bool:
    """Whether a pattern matches the whole of a text."""
    return _LINE_ENDS.isdisjoint(text) and pattern.fullmatch(text) is not None


def substitution(setting: str, pattern: str, replacement: str) -> Substitution:
    """Raises `InvalidConfig`, which names the setting."""
    found = compiled(setting, pattern)
    return Substitution(found, tuple(_parts(setting, replacement, found.groups)))


def _parts(setting: str, replacement: str, groups: int) -> Iterator[str | int]:
    end = 0
    for found in _REFERENCE.finditer(replacement):
        yield replacement[end : found.start()]
        end = found.end()
        escaped, number, sign = found.groups()
        if sign:
            raise refused(setting, replacement, f"{sign} refers to no group; write \\{sign} for the letter")
        yield escaped if number is None else ""
        if number is not None:
            taken = next((size for size in range(len(number), 0, -1) if int(number[:size]) <= groups), 0)
            yield int(number[:taken]) if taken else f"${number[:1]}"
            yield number[taken or 1 :]
    yield replacement[end:]


def refused(setting: str, part: str, why: str) -> InvalidConfig:
    """The error of a rule that cannot be used."""
    return InvalidConfig(f"{setting}: invalid rule {part!r}: {why}")
