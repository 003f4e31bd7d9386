"""PURE: columns as the binlog itself describes them, and how to read their values from its bytes.

Values are those that the driver has for a query, so that a row of a snapshot and one of the binlog become the same
record. Sources: MySQL's and MariaDB's `Field::pack` and `my_time.cc`, by their documentation.
"""

import datetime as dt
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.mysql.decoding import json_binary
from ottla.connect.connectors.mysql.decoding.charsets import MAX_BYTES, decoder
from ottla.connect.connectors.mysql.decoding.types import MysqlColumn

Read = Callable[[bytes, int], tuple[Any, int]]
"""The value that begins at a place, and the place after it."""


class UnreadableError(ValueError):
    """Bytes of the binlog that this module does not know; the text describes them."""


@dataclass(frozen=True, slots=True)
class Described:
    """The metadata of one column in a table map. `meta`: of its type; `charset`: None if it has none.

    `labels`: values of an ENUM or SET, in the column's character set.
    """

    name: str
    code: int
    meta: bytes
    nullable: bool
    unsigned: bool = False
    charset: str | None = None
    labels: Sequence[bytes] = ()
    geometry: int = 0


TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 11, 12, 13, 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 242, 245, 246, 247, 248, 252, 253, 254, 255

META_BYTES: Final[Mapping[int, int]] = {
    **dict.fromkeys((FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, BLOB, BLOB_COMPRESSED, JSON, GEOMETRY, VECTOR), 1),
    **dict.fromkeys((VARCHAR, VARCHAR_COMPRESSED, BIT, NEWDECIMAL, VAR_STRING, STRING, ENUM, SET), 2),
}
"""How many bytes of metadata a type has, if any."""
NUMERIC: Final = frozenset({TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, NEWDECIMAL})
"""Types with a flag for their sign."""
_INTEGERS: Final[Mapping[int, tuple[str, int]]] = {
    TINY: ("tinyint", 1),
    SHORT: ("smallint", 2),
    INT24: ("mediumint", 3),
    LONG: ("int", 4),
    LONGLONG: ("bigint", 8),
}
_BLOBS: Final = ("", "tiny", "", "medium", "long")
_SHAPES: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (as the driver has them, in UTC)
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a decimal's group of so many digits."""


def real_code(code: int, meta: bytes) -> int:
    """ENUM and SET come as STRING, and say in the metadata what they are."""
    return meta[0] if code == STRING and meta[0] in (ENUM, SET) else code


def column(said: Described) -> tuple[MysqlColumn, Read]:
    """The column as information_schema would describe it, and what reads its values.

    Raises UnreadableError for a type that is not known.
    """
    code, meta, name, nullable = said.code, said.meta, said.name, said.nullable
    if code in _INTEGERS:
        kind, size = _INTEGERS[code]
        full = f"{kind} unsigned" if said.unsigned else kind
        return MysqlColumn(name, kind, full, nullable, 0, 0, 0), _integer(size, signed=not said.unsigned)
    if code == NEWDECIMAL:
        precision, scale = meta
        full = f"decimal({precision},{scale})"
        return MysqlColumn(name, "decimal", full, nullable, precision, scale, 0), _decimal(precision, scale)
    if code in _TEMPORAL:
        kind, reader = _TEMPORAL[code]
        fraction = meta[0] if meta else 0
        return MysqlColumn(name, kind, kind, nullable, 0, 0, fraction), reader(fraction)
    if code in _PLAIN:
        kind, plain = _PLAIN[code]
        return MysqlColumn(name, kind, kind, nullable, 0, 0, 0), plain
    if code == BIT:
        bits = meta[0] + 8 * meta[1]
        return MysqlColumn(name, "bit", f"bit({bits})", nullable, 0, 0, 0), _fixed((bits + 7) // 8)
    if code in (ENUM, SET):
        return _labelled(said)
    if code in _LONG:
        kind = _SHAPES[min(said.geometry, len(_SHAPES) - 1)] if code == GEOMETRY else _LONG[code]
        read = _prefixed(meta[0], _document if code == JSON else bytes)
        return MysqlColumn(name, kind, kind, nullable, 0, 0, 0), read
    if code in (VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED, BLOB, BLOB_COMPRESSED):
        return _text(said)
    raise UnreadableError(f"column {name} has type {code} of the binlog, which is not known")


def _text(said: Described) -> tuple[MysqlColumn, Read]:
    """A column of characters or bytes; these have the character set `binary`."""
    code, meta = said.code, said.meta
    binary = said.charset in (None, "binary")
    decode: Callable[[bytes], Any] = bytes
    if not binary:
        try:
            decode = decoder(str(said.charset))
        except KeyError:
            raise UnreadableError(f"column {said.name} has the character set {said.charset}, not known here") from None
    if code in (BLOB, BLOB_COMPRESSED):
        size = meta[0]
        kind = _BLOBS[min(size, 4)] + ("blob" if binary else "text")
        full = kind
    else:
        length = _string_length(meta) if code == STRING else int.from_bytes(meta, "little")
        size = 1 if length < 256 else 2
        kind = ("" if code == STRING else "var") + ("binary" if binary else "char")
        full = f"{kind}({length // MAX_BYTES.get(str(said.charset), 1)})"
    if code in (BLOB_COMPRESSED, VARCHAR_COMPRESSED):
        return MysqlColumn(said.name, kind, full, said.nullable, 0, 0, 0), _prefixed(size, _inflated(decode))
    return MysqlColumn(said.name, kind, full, said.nullable, 0, 0, 0), _prefixed(size, decode)


def _string_length(meta: bytes) -> int:
    """The length in bytes. Lengths above 255 have their upper bits, inverted, in the bits of the type."""
    return (((meta[0] << 4) & 0x300) ^ 0x300) + meta[1]


def _labelled(said: Described) -> tuple[MysqlColumn, Read]:
    kind = "enum" if said.code == ENUM else "set"
    charset = said.charset or "binary"
    decode = decoder("latin1" if charset == "binary" else charset)
    labels = [decode(label) for label in said.labels]
    full = f"{kind}({','.join(_quoted(label) for label in labels)})"
    size = said.meta[1]

    def read_enum(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + size], "little")
        return (labels[number - 1] if 0 < number <= len(labels) else ""), at + size

    def read_set(data: bytes, at: int) -> tuple[str, int]:
        bits = int.from_bytes(data[at : at + size], "little")
        return ",".join(label for number, label in enumerate(labels) if bits >> number & 1), at + size

    return MysqlColumn(said.name, kind, full, said.nullable, 0, 0, 0), read_enum if kind == "enum" else read_set


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def _integer(size: int, *, signed: bool) -> Read:
    formats = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}
    if size not in formats:
        return lambda data, at: (int.from_bytes(data[at : at + size], "little", signed=signed), at + size)
    unpack = struct.Struct(formats[size] if signed else formats[size].upper()).unpack_from
    return lambda data, at: (unpack(data, at)[0], at + size)


def _float(form: str, size: int) -> Read:
    unpack = struct.Struct(form).unpack_from
    return lambda data, at: (unpack(data, at)[0], at + size)


def _fixed(size: int) -> Read:
    return lambda data, at: (data[at : at + size], at + size)


def _prefixed(size: int, convert: Callable[[bytes], Any]) -> Read:
    """What begins with its length in `size` bytes."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + size
        end = begin + int.from_bytes(data[at:begin], "little")
        return convert(data[begin:end]), end

    return read


def _inflated(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """MariaDB's COMPRESSED columns: how, with the number of bytes of the length, then the length, then the rest."""

    def convert(raw: bytes) -> Any:
        head = raw[0] if raw else 0
        if head >> 4 == 0:
            return decode(raw[1:])
        if head >> 4 != 8:
            raise UnreadableError(f"a value is compressed by the method {head >> 4}, which is not known")
        return decode(zlib.decompress(raw[1 + (head & 7) :], -zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS))

    return convert


def _document(raw: bytes) -> str | None:
    """A document of MySQL's JSON. An empty value is one of a row that was there before the column was."""
    return json_binary.text(raw, lambda precision, scale, data: _decimal(precision, scale)(data, 0)[0]) if raw else None


def _decimal(precision: int, scale: int) -> Read:
    """Groups of nine digits in four bytes each, the first and the last group shorter; negatives are inverted."""
    first, whole = (precision - scale) % 9, (precision - scale) // 9
    parts, last = scale // 9, scale % 9
    sizes = [(first, _DIGIT_BYTES[first]), *[(9, 4)] * (whole + parts), (last, _DIGIT_BYTES[last])]
    sizes = [(digits, size) for digits, size in sizes if size]
    length = sum(size for _, size in sizes)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        raw, end = data[at : at + length], at + length
        negative = raw[0] < 0x80
        raw = bytes((raw[0] ^ 0x80, *raw[1:]))
        if negative:
            raw = bytes(each ^ 0xFF for each in raw)
        digits, begin = [], 0
        for count, size in sizes:
            digits.append(f"{int.from_bytes(raw[begin : begin + size]):0{count}d}")
            begin += size
        number = int("".join(digits))
        return Decimal(f"{'-' if negative and number else ''}{number}e-{scale}"), end

    return read


def _micros(raw: int, size: int) -> int:
    """A fraction of 0 to 3 bytes, which has two digits in each."""
    return int(raw * 10 ** (6 - 2 * size))


def _time2(fraction: int) -> Read:
    size = (fraction + 1) // 2
    length, zero = 3 + size, 0x80 << 8 * (2 + size)

    def read(data: bytes, at: int) -> tuple[dt.timedelta, int]:
        number = int.from_bytes(data[at : at + length]) - zero
        packed, micros = divmod(abs(number), 1 << 8 * size)
        found = dt.timedelta(
            hours=packed >> 12 & 0x3FF,
            minutes=packed >> 6 & 0x3F,
            seconds=packed & 0x3F,
            microseconds=_micros(micros, size),
        )
        return (-found if number < 0 else found), at + length

    return read


def _datetime2(fraction: int) -> Read:
    size = (fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[dt.datetime | None, int]:
        packed, end = int.from_bytes(data[at : at + 5]) - 0x8000000000, at + 5 + size
        year, month = divmod(packed >> 22, 13)
        day, hour, minute, second = packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63
        micros = _micros(int.from_bytes(data[at + 5 : end]), size)
        return _moment(year, month, day, hour, minute, second, micros), end

    return read


def _timestamp2(fraction: int) -> Read:
    size = (fraction + 1) // 2

    def read(data: bytes, at: int) -> tuple[dt.datetime, int]:
        end = at + 4 + size
        seconds, micros = int.from_bytes(data[at : at + 4]), _micros(int.from_bytes(data[at + 4 : end]), size)
        return _EPOCH + dt.timedelta(seconds=seconds, microseconds=micros), end

    return read


def _moment(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micros: int = 0
) -> dt.datetime | None:
    """None for a day that no calendar has."""
    try:
        return dt.datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001 (as the driver has them)
    except ValueError:
        return None


def _date(_fraction: int) -> Read:
    def read(data: bytes, at: int) -> tuple[dt.date | None, int]:
        packed = int.from_bytes(data[at : at + 3], "little")
        found = _moment(packed >> 9, packed >> 5 & 15, packed & 31)
        return (found.date() if found is not None else None), at + 3

    return read


def _old_time(_fraction: int) -> Read:
    """As servers before MySQL 5.6 and MariaDB 10.1 kept it, and tables since then: its digits as a number."""

    def read(data: bytes, at: int) -> tuple[dt.timedelta, int]:
        number = int.from_bytes(data[at : at + 3], "little", signed=True)
        hours, rest = divmod(abs(number), 10_000)
        found = dt.timedelta(hours=hours, minutes=rest // 100, seconds=rest % 100)
        return (-found if number < 0 else found), at + 3

    return read


def _old_datetime(_fraction: int) -> Read:
    def read(data: bytes, at: int) -> tuple[dt.datetime | None, int]:
        text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
        parts = [int(text[begin : begin + 2]) for begin in range(4, 14, 2)]
        return _moment(int(text[:4]), *parts), at + 8

    return read


def _old_timestamp(_fraction: int) -> Read:
    return lambda data, at: (
        _EPOCH + dt.timedelta(seconds=int.from_bytes(data[at : at + 4], "little")),
        at + 4,
    )


def _year(data: bytes, at: int) -> tuple[int, int]:
    return (1900 + data[at] if data[at] else 0), at + 1


_TEMPORAL: Final[Mapping[int, tuple[str, Callable[[int], Read]]]] = {
    DATE: ("date", _date),
    TIME: ("time", _old_time),
    DATETIME: ("datetime", _old_datetime),
    TIMESTAMP: ("timestamp", _old_timestamp),
    TIME2: ("time", _time2),
    DATETIME2: ("datetime", _datetime2),
    TIMESTAMP2: ("timestamp", _timestamp2),
}
_PLAIN: Final[Mapping[int, tuple[str, Read]]] = {
    FLOAT: ("float", _float("<f", 4)),
    DOUBLE: ("double", _float("<d", 8)),
    YEAR: ("year", _year),
}
_LONG: Final[Mapping[int, str]] = {GEOMETRY: "geometry", JSON: "json", VECTOR: "vector"}
