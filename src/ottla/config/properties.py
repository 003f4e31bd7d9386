"""Java's `.properties` format, as Kafka's configuration files are written.

    # a comment          ! another
    log.dirs=/data/a,\\
             /data/b
    name : value         name value        \\u0041 \\t \\n \\:

Source: the documentation of `java.util.Properties.load`. Files are read as UTF-8.
"""

import re
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_BLANK: Final = " \t\f"

PLACEHOLDER: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*?)\}")
"""Provider, path and key of a value that stands elsewhere (KIP-297); `providers` looks it up."""


class PropertiesProblem(ValueError):
    """The text is no properties file; the message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    """Read a properties file's text; the last of several values of a key wins.

    Raises:
        PropertiesProblem: a `\\u` escape is malformed, or a line has a value but no key.
    """
    found: dict[str, str] = {}
    logical, started_at = "", 0
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip(_BLANK)
        if not logical:
            if not stripped or stripped[0] in "#!":
                continue
            started_at = number
        logical += stripped
        if _continues(logical):
            logical = logical[:-1]
            if number < len(lines):
                continue
        _add(found, logical, started_at)
        logical = ""
    if logical:
        _add(found, logical, started_at)
    return found


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _add(found: dict[str, str], line: str, number: int) -> None:
    match = _KEY_END.match(line)
    assert match is not None  # it matches the empty string
    separator = _SEPARATOR.match(line, match.end())
    assert separator is not None
    key = _unescape(match.group(), number)
    if not key:
        raise PropertiesProblem(f"line {number}: no name before {line[match.end() : match.end() + 20]!r}")
    found[key] = _unescape(line[separator.end() :], number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise PropertiesProblem(f"line {number}: \\u needs four hexadecimal digits")
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)
