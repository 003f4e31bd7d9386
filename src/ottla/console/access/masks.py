"""Masks: fields of records that only administrators see, so that support staff can look without seeing. PURE.

    value.card, value.customer.iban, headers.token, key

A mask names a field by its path from `key` or `value`, or a header; `*` stands for any field, and lists are gone
through. What is masked is replaced before anything looks at it: pages, filters, exports. A key or value that cannot be
read as JSON is masked whole where a mask names a field of it, since the field might be anywhere in it.
"""

from collections.abc import Iterable
from typing import Any, Final

MASKED: Final = "(masked)"
QUOTING: Final = frozenset(
    ("ottla.dead-letter.reason", "__connect.errors.exception.message", "__connect.errors.exception.stacktrace")
)
"""Headers of dead letters that may name values: why these were refused."""
DEEPEST: Final = 50
"""Levels of JSON that are gone through; what is deeper is masked whole."""

Path = tuple[str, ...]


class MaskProblem(ValueError):
    """A text is no mask; the message has the reason."""


class Masks:
    """The masks of one viewer. Without any, everything is as it is."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._paths: dict[str, tuple[Path, ...]] = {"key": (), "value": (), "headers": ()}
        for part, *rest in paths:
            self._paths[part] += (tuple(rest),)

    def __bool__(self) -> bool:
        return any(self._paths.values())

    def hides(self, part: str) -> bool:
        """Whether something of `key`, `value` or `headers` is masked."""
        return bool(self._paths[part])

    def applied(self, part: str, found: Any) -> Any:
        """What may be seen of a key or value that was decoded; of one that was not (text, bytes, null), nothing or
        all."""
        paths = self._paths[part]
        if not paths or found is None:
            return found
        if () in paths or not isinstance(found, (dict, list)):
            return MASKED
        return _masked(found, paths, 0)

    def hides_header(self, name: str) -> bool:
        """Whether the value of a header is masked; the letters' case does not matter."""
        if self and name.lower() in QUOTING:
            return True
        return any(path in ((), ("*",)) or path[0].lower() == name.lower() for path in self._paths["headers"])


def parse_masks(texts: Iterable[str]) -> Masks:
    """Masks from texts with commas between. Raises MaskProblem."""
    paths = []
    for text in (part.strip() for each in texts for part in each.split(",")):
        if not text:
            continue
        part, *rest = text.split(".")
        if part not in ("key", "value", "headers") or not all(rest):
            raise MaskProblem(f"{text!r} is no mask: value, value.FIELD, value.FIELD.FIELD, key.FIELD or headers.NAME")
        # the name of a header may have dots
        paths.append((part, ".".join(rest)) if part == "headers" and rest else (part, *rest))
    return Masks(paths)


def _masked(found: Any, paths: tuple[Path, ...], depth: int) -> Any:
    if () in paths or depth > DEEPEST:
        return MASKED
    if isinstance(found, list):
        return [_masked(each, paths, depth + 1) for each in found]
    if isinstance(found, dict):
        return {name: _field(name, value, paths, depth) for name, value in found.items()}
    return found


def _field(name: str, value: Any, paths: tuple[Path, ...], depth: int) -> Any:
    """A field's value. A name that has dots, as `card.number` has, is also masked like a field of a field."""
    below = [path[1:] for path in paths if path[0] in ("*", name)]
    if "." in name:
        parts = name.split(".")
        below += [path[len(parts) :] for path in paths if all(a in ("*", b) for a, b in zip(path, parts, strict=False))]
    return _masked(value, tuple(below), depth + 1) if below else value
