"""PURE: MySQL's binary JSON in the binlog, converted to the text of a query result.

A document is a type and a value. Objects and arrays have tables of positions, counted from their own begin, in numbers
of
two or four bytes; short values stand in the table itself. Source: MySQL's json_binary.h.
"""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

_OBJECTS, _ARRAYS, _LITERAL, _STRING, _OPAQUE = (0, 1), (2, 3), 4, 12, 15
_NUMBERS: Final[Mapping[int, struct.Struct]] = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<d"),
}
_LITERALS: Final = {0: None, 1: True, 2: False}
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246

ReadDecimal = Callable[[int, int, bytes], Decimal]
"""Reads a DECIMAL: its precision, its scale, its bytes."""


def text(raw: bytes, read_decimal: ReadDecimal) -> str:
    """A document as JSON. Raises ValueError, LookupError or struct.error for other bytes."""
    return json.dumps(_value(raw[0], raw, 1, read_decimal), ensure_ascii=False)


def _value(kind: int, data: bytes, at: int, read_decimal: ReadDecimal) -> Any:
    if kind in _NUMBERS:
        return _NUMBERS[kind].unpack_from(data, at)[0]
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind == _STRING:
        length, begin = _length(data, at)
        return data[begin : begin + length].decode()
    if kind in _OBJECTS or kind in _ARRAYS:
        return _container(kind, data, at, read_decimal)
    if kind == _OPAQUE:
        length, begin = _length(data, at + 1)
        return _opaque(data[at], data[begin : begin + length], read_decimal)
    raise ValueError(f"JSON has no type {kind}")


def _container(kind: int, data: bytes, begin: int, read_decimal: ReadDecimal) -> Any:
    size = 4 if kind & 1 else 2

    def number(at: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    count = number(begin)
    keys = begin + 2 * size
    values = keys + (count * (size + 2) if kind in _OBJECTS else 0)
    found = []
    for at in range(values, values + count * (size + 1), size + 1):
        inline = data[at] in (_LITERAL, 5, 6) or (size == 4 and data[at] in (7, 8))
        found.append(_value(data[at], data, at + 1 if inline else begin + number(at + 1), read_decimal))
    if kind in _ARRAYS:
        return found
    names = []
    for at in range(keys, values, size + 2):
        first = begin + number(at)
        names.append(data[first : first + int.from_bytes(data[at + size : at + size + 2], "little")].decode())
    return dict(zip(names, found, strict=True))


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length in groups of seven bits, the lowest first, and the place after it."""
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return length, at


def _opaque(kind: int, raw: bytes, read_decimal: ReadDecimal) -> Any:
    """A value of a column's type; what JSON has no form for is text, as a query writes it."""
    if kind == _DECIMAL:
        return float(read_decimal(raw[0], raw[1], raw[2:]))
    if kind not in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        return f"base64:type{kind}:{base64.b64encode(raw).decode()}"
    packed = int.from_bytes(raw, "little", signed=True)
    number, micros = divmod(abs(packed), 1 << 24)
    sign = "-" if packed < 0 else ""
    clock = f"{number >> 6 & 63:02d}:{number & 63:02d}.{micros:06d}"
    if kind == _TIME:
        return f"{sign}{number >> 12 & 0x3FF:02d}:{clock}"
    year, month = divmod(number >> 22, 13)
    day = f"{year:04d}-{month:02d}-{number >> 17 & 31:02d}"
    return day if kind == _DATE else f"{day} {number >> 12 & 31:02d}:{clock}"
