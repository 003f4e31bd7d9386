"""The scalar types of the protocol, and the variable-length integers.

The aliases (`Int16`, `Records`, ...) are what declarations in `messages` are written with; plain `bool`, `str`,
`bytes`, `uuid.UUID` and `list[...]` complete them. Everything is big-endian. Variable-length integers
hold seven bits per byte, least significant group first, the top bit set on all but the last byte.
"""

from __future__ import annotations

import uuid
from collections.abc import Sized
from typing import Annotated, Any, Final, TypeAlias

from ottla.protocol.errors import MalformedMessage

Buffer: TypeAlias = bytes | bytearray | memoryview
Piece: TypeAlias = bytes | bytearray | memoryview | Sized
"""One element of an encoded message: bytes, or something whose length is known and that the connection can send."""


class Encoded(bytes):
    """A structure encoded beforehand, for one message in one version (`compiled.encode_part`).

    It takes the structure's place in a list, so that what many answers have in common is encoded once.
    """

    __slots__ = ()


class Primitive:
    """A type without inner structure. `code` is its `struct` format; empty when its length varies."""

    __slots__ = ("code", "name", "size")

    def __init__(self, name: str, code: str, size: int) -> None:
        self.name = name
        self.code = code
        self.size = size

    def __repr__(self) -> str:
        return self.name


BOOL: Final = Primitive("bool", "?", 1)
INT8: Final = Primitive("int8", "b", 1)
INT16: Final = Primitive("int16", "h", 2)
UINT16: Final = Primitive("uint16", "H", 2)
INT32: Final = Primitive("int32", "i", 4)
UINT32: Final = Primitive("uint32", "I", 4)
INT64: Final = Primitive("int64", "q", 8)
FLOAT64: Final = Primitive("float64", "d", 8)
UUID: Final = Primitive("uuid", "16s", 16)
STRING: Final = Primitive("string", "", 0)
BYTES: Final = Primitive("bytes", "", 0)
RECORDS: Final = Primitive("records", "", 0)

Int8: TypeAlias = Annotated[int, INT8]
Int16: TypeAlias = Annotated[int, INT16]
UInt16: TypeAlias = Annotated[int, UINT16]
Int32: TypeAlias = Annotated[int, INT32]
UInt32: TypeAlias = Annotated[int, UINT32]
Int64: TypeAlias = Annotated[int, INT64]
Float64: TypeAlias = Annotated[float, FLOAT64]
Records: TypeAlias = Annotated[Any, RECORDS]
"""Record batches, never opened here.

Decoding gives a `memoryview` into the input. Encoding takes a buffer, a list or tuple of buffers, or any object
with `__len__` (a region of a file, say); none is copied, each becomes an element of the encoded list.
"""

NULL_UUID: Final = uuid.UUID(int=0)
MAX_STRING: Final = 0x7FFF
MAX_INT32: Final = 0x7FFF_FFFF


_CUT: Final = b" ..."


def shortened(text: bytes) -> bytes:
    """The text of an error as a string on the wire: what is longer than MAX_STRING is cut between two characters."""
    if len(text) <= MAX_STRING:
        return text
    return text[: MAX_STRING - len(_CUT)].decode(errors="ignore").encode() + _CUT


class _UuidCache(dict[bytes, uuid.UUID]):
    """UUIDs by their 16 bytes. Topic ids recur in every request, and building a UUID costs ten look-ups."""

    def __missing__(self, raw: bytes) -> uuid.UUID:
        if len(self) >= 4096:
            self.clear()
        value = self[raw] = uuid.UUID(bytes=raw)
        return value


UUIDS: Final = _UuidCache({bytes(16): NULL_UUID})


def continue_uvarint(buffer: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte had its top bit set.

    Returns the value and the position after it. Raises `MalformedMessage` past five bytes or 31 bits: lengths and
    tags are non-negative 32-bit integers in Kafka.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("unsigned varint is longer than five bytes")
    if value > MAX_INT32:
        raise MalformedMessage(f"unsigned varint {value} does not fit 31 bits")
    return value, pos


def read_uvarint(buffer: Buffer, pos: int) -> tuple[int, int]:
    """Unsigned varint at `pos`, and the position after it. Raises `IndexError` at the end of the buffer."""
    first = buffer[pos]
    if first < 0x80:
        return first, pos + 1
    return continue_uvarint(buffer, pos + 1, first)


def uvarint(value: int) -> bytes:
    """`value` (non-negative) as an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(buffer: Buffer, pos: int, count: int) -> int:
    """Position after `count` unknown tagged fields (KIP-482)."""
    end = len(buffer)
    for _ in range(count):
        _tag, pos = read_uvarint(buffer, pos)
        size, pos = read_uvarint(buffer, pos)
        pos += size
        if pos > end:
            raise MalformedMessage("tagged field reaches past the end of the message")
    return pos
