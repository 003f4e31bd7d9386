"""Mending dead letters: a function over a record, from a file of the user's (`ottla pipeline redrive --with mend.py`).

    def mend(letter):
        order = json.loads(letter.value)
        order.setdefault("country", "unknown")
        return order

The function gets a `Letter`. It returns the record's new value, or the letter with other parts (`changed`), or None to
leave the letter where it is.
"""

import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.failures import explain_python
from ottla.pipeline.rows.dead_letters import Header

FUNCTION: Final = "mend"
_NO_HEADERS: Final = f"{FUNCTION} returned headers that are no pairs of name and value"

Mend = Callable[["Letter"], object]


class MendError(PipelineError):
    """The file holds no function that can be called."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that was rejected, as it was before, and where it came from. Without a source, `topic`, `partition`,
    `offset` and `timestamp_ms` (of the record, in milliseconds since 1970) are None."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    reason: str
    view: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None

    def json(self) -> Any:
        """The value as JSON. Raises ValueError if it is none."""
        return json.loads(self.value or b"")

    def changed(self, **parts: Any) -> "Letter":
        """The letter with another `key`, `value` or other `headers`. Raises TypeError for another part."""
        other = parts.keys() - {"key", "value", "headers"}
        if other:
            raise TypeError(f"a letter is mended in its key, value and headers, not in {', '.join(sorted(other))}")
        return replace(self, **parts)


def load_mend(file: Path) -> Mend:
    """The function `mend` of a Python file. Raises MendError with the line that is wrong."""
    try:
        found = runpy.run_path(str(file)).get(FUNCTION)
    except SyntaxError as error:
        raise MendError(f"{file}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise MendError(f"{file}: {explain_python(error)}") from error
    if not callable(found):
        raise MendError(f"{file} has no function {FUNCTION}(letter)")
    function: Mend = found
    return function


def mended(mend: Mend, letter: Letter) -> Letter | None:
    """What the function makes of a letter; None to leave it. Raises MendError if it fails, or returns no record."""
    try:
        made = mend(letter)
    except Exception as error:
        raise MendError(f"{FUNCTION} failed with {explain_python(error)}") from error
    if made is None:
        return None
    found = made if isinstance(made, Letter) else replace(letter, value=_bytes(made, "value"))
    headers = tuple(_header(each) for each in _listed(found.headers))
    return replace(found, key=_bytes(found.key, "key"), value=_bytes(found.value, "value"), headers=headers)


def _listed(headers: object) -> list[object] | tuple[object, ...]:
    if not isinstance(headers, list | tuple):
        raise MendError(_NO_HEADERS)
    return headers


def _header(pair: object) -> Header:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise MendError(_NO_HEADERS)
    name, value = pair
    _encoded(name, "name of a header")
    return name, _bytes(value, "header")


def _bytes(part: object, what: str) -> bytes | None:
    if part is None or isinstance(part, bytes):
        return part
    if isinstance(part, bytearray | memoryview):
        return bytes(part)
    if isinstance(part, str):
        return _encoded(part, what)
    if isinstance(part, dict | list):
        try:
            return json.dumps(part, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as problem:
            raise MendError(f"{FUNCTION} returned a {what} that is no JSON: {problem}") from None
    raise MendError(f"{FUNCTION} returned {type(part).__name__} as {what}: give bytes, text, or a dict or list as JSON")


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as problem:  # half of a character, as JSON can have it
        raise MendError(f"{FUNCTION} returned a {what} that is no text: {problem}") from None
