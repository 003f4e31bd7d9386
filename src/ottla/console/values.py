"""Keys, values and headers as people read them: JSON, Avro, Protobuf, text or bytes, recognised by their content. PURE.

What a writer of records sent is never trusted: recognition takes time and memory that the size of the bytes bounds,
and what cannot be read is shown as text or bytes.
"""

import base64
import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

SHOWN_CHARACTERS: Final = 2_000
"""Shown in a list of records; the page of a record has more."""
WHOLE_CHARACTERS: Final = 200_000
LARGEST_JSON_BYTES: Final = 4 << 20
"""Larger ones are shown as text: to read them takes the server's time."""
MOST_ELEMENTS: Final = 200_000
"""Objects, lists and their elements in JSON; with more, it is shown as text. A parser holds up all other threads."""
_FEW_BYTES: Final = MOST_ELEMENTS
LARGEST_TEXT_BYTES: Final = 8 << 20
"""Filters see so much of larger ones."""
HEX_BYTES: Final = 512
TOO_DEEP: Final = "(too deeply nested to be shown)"
_HEAD_BYTES: Final = 5
_NO_ID: Final = b"\0\0\0\0"
"""A number of eight bytes begins so, too."""
_CONTROLS: Final = bytes(each for each in range(32) if each not in b"\t\r\n")
_LOOKED_AT: Final = 4 * SHOWN_CHARACTERS


class Value(NamedTuple):
    """A key, value or header, as it was recognised."""

    kind: str
    """json, avro, protobuf, text, bytes, null or empty."""
    content: Any
    """What filters, columns and exports see: of JSON, Avro and Protobuf a value of JSON, else text; None for bytes."""
    data: bytes | None
    """The bytes; None for null, and where a mask hides something of them."""
    note: str = ""
    """A sentence for beside it: its schema, or why it was not decoded."""


class Decoded(NamedTuple):
    """A value that was read by its schema; or, with `kind` empty, why it was not."""

    kind: str
    content: Any
    note: str


Decode = Callable[[bytes], Decoded]
"""Reads bytes that begin as a registry's values do. Raises nothing."""


class Shown(NamedTuple):
    """A key or value on a page."""

    kind: str
    text: str
    size: int
    is_cut: bool
    note: str = ""


NULL: Final = Value("null", None, None)
EMPTY: Final = Value("empty", "", b"")


def recognise(data: bytes | None, decode: Decode | None = None) -> Value:
    """What a key, value or header is. `decode` reads what begins as a registry's values do."""
    if data is None:
        return NULL
    if not data:
        return EMPTY
    note = ""
    if data[0] == 0 and decode is not None and len(data) >= _HEAD_BYTES and data[1:_HEAD_BYTES] != _NO_ID:
        kind, content, note = decode(data)
        if kind:
            return Value(kind, content, data, note)
    if data[0] in b"{[ \t\r\n" and (found := read_json(data)) is not None:
        return Value("json", found, data)
    if data[:_LOOKED_AT].translate(None, _CONTROLS) != data[:_LOOKED_AT]:
        return Value("bytes", None, data, note)
    try:
        return Value("text", data[:LARGEST_TEXT_BYTES].decode("utf-8", _strictness(data)), data)
    except UnicodeDecodeError:
        return Value("bytes", None, data, note)


def read_json(data: bytes) -> Any:
    """The value of JSON that is an object or a list; None for anything else, and for what is nested too deeply."""
    if len(data) > LARGEST_JSON_BYTES or (len(data) > _FEW_BYTES and _elements(data) > MOST_ELEMENTS):
        return None
    try:
        found = from_json(data, cache_strings="keys")
    except ValueError:
        return None
    return found if isinstance(found, (dict, list)) else None


def _elements(data: bytes) -> int:
    """At least as many as there are: texts may have commas, too."""
    return sum(map(data.count, (b",", b"[", b"{")))


def _strictness(data: bytes) -> str:
    """The end of what is looked at may lie within a character."""
    return "strict" if len(data) <= LARGEST_TEXT_BYTES else "ignore"


def show(value: Value, most: int = SHOWN_CHARACTERS) -> Shown:
    """A key or value on a page, at most `most` characters of it."""
    kind, content, data, note = value
    size = len(data or b"")
    if kind == "null":
        return Shown(kind, "null", 0, False, note)
    if kind == "bytes":
        assert data is not None
        return Shown(kind, data[:HEX_BYTES].hex(" "), size, size > HEX_BYTES, note)
    if kind in ("text", "empty"):
        return Shown(kind, content[:most], size, len(content) > most, note)
    if most > SHOWN_CHARACTERS:
        text = indented(content, most)
    elif kind == "json" and data is not None:
        text = data.decode("utf-8", "replace").strip()
    else:
        text = written(content)
    return Shown(kind, text[:most], size, len(text) > most, note)


def plain(value: Value) -> str | None:
    """A key, value or header as one text, for exports: JSON on one line, bytes in base64; None for null."""
    if value.kind == "null":
        return None
    if value.kind == "bytes":
        return base64.b64encode(value.data or b"").decode()
    if value.kind == "text" and value.data is not None and len(value.data) > LARGEST_TEXT_BYTES:
        return value.data.decode("utf-8", "replace")
    return value.content if isinstance(value.content, str) else written(value.content)


def written(content: Any) -> str:
    """A value of JSON as text; what was not nested too deeply to be read may be so for being written."""
    try:
        return json.dumps(content, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return TOO_DEEP


def indented(content: Any, most: int) -> str:
    """A value of JSON as text of many lines: one character more than `most`, if there are so many.

    No more than that is written: indented, 4 MB of brackets and numbers are 1 GB of spaces.
    """
    pieces, length = [], 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(content):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                break
    except (ValueError, RecursionError):
        return TOO_DEEP
    return "".join(pieces)[: most + 1]


def human_bytes(size: float) -> str:
    """`1.5 MB`, in powers of ten."""
    if size < 1000:
        return f"{size:.0f} B"
    power = min(int(math.log10(size) // 3), 5)
    return f"{size / 1000**power:.1f} {'kMGTP'[power - 1]}B"


def human_duration(seconds: float) -> str:
    """A duration for a person: `4 s`, `3 min`, `2 h`, `5 d`."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
