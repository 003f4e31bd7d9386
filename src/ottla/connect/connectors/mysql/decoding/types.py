"""PURE: columns of MySQL and MariaDB as schemas, and their values, from a query or from the binlog, in them.

Values are those that the driver has for a query; `binlog_types` reads the same ones from the binlog. Source of the
mapping: Debezium 3.2, MySqlValueConverters.
"""

import base64
import datetime as dt
import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.capture import types
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    date,
    time,
    timestamp,
)

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (columns without a zone)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_US: Final = dt.timedelta(microseconds=1)
_CHARACTERS: Final = re.compile(r"(?:var)?char\((\d+)\)")
_LABELS: Final = re.compile(r"'((?:[^']|'')*)'")

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MysqlColumn:
    """A row of information_schema.columns. `kind`: data_type; `full`: column_type, such as `int(10) unsigned`.

    default: as the server writes it; has_expression: whether MySQL marks it as an expression.
    """

    name: str
    kind: str
    full: str
    nullable: bool
    precision: int
    scale: int
    fraction: int
    default: str | None = None
    has_expression: bool = False


def character_length(column: MysqlColumn) -> int | None:
    """Maximal number of characters in a column; None without a declared limit, or without characters."""
    return int(found[1]) if (found := _CHARACTERS.match(column.full)) else None


def map_column(column: MysqlColumn, settings: MysqlSettings) -> tuple[Schema, Convert, Any]:
    """Schema, converter of a value that is not null, and what stands for a null where none is allowed."""
    unsigned = "unsigned" in column.full
    kind = column.kind
    if kind in _INTEGERS:
        signed, wider = _INTEGERS[kind]
        return (wider if unsigned else signed), int, 0
    if kind == "bigint":
        if unsigned and settings.bigint_unsigned_handling_mode == "precise":
            return types.decimal(20, 0), Decimal, Decimal(0)
        return INT64, _int64, 0
    if kind in ("decimal", "numeric"):
        return _decimal(column, settings)
    if kind in _TEMPORAL:
        return _temporal(column, settings.time_precision_mode)
    if kind == "bit":
        if column.full == "bit(1)":
            return BOOLEAN, lambda value: _bits(value) == 1, False
        length = int(column.full[4:-1])
        return types.bits(length), lambda value: _bits(value).to_bytes((length + 7) // 8, "little"), b""
    if kind in ("enum", "set"):
        labels = [label.replace("''", "'") for label in _LABELS.findall(column.full)]
        return (types.enumeration(labels) if kind == "enum" else types.label_set(labels)), str, ""
    if kind in _BINARY:
        # the binlog leaves zeros out at the end of a value of a fixed length
        return _binary(settings.binary_handling_mode, int(column.full[7:-1]) if kind == "binary" else 0)
    return _PLAIN.get(kind, (STRING, _text, ""))


def _decimal(column: MysqlColumn, settings: MysqlSettings) -> tuple[Schema, Convert, Any]:
    if settings.decimal_handling_mode == "string":
        return STRING, lambda value: f"{value:f}", f"{0:.{column.scale}f}"
    if settings.decimal_handling_mode == "double":
        return FLOAT64, float, 0.0
    return types.decimal(column.precision, column.scale), Decimal, Decimal(0)


def _temporal(column: MysqlColumn, mode: str) -> tuple[Schema, Convert, Any]:
    kind = column.kind
    if kind == "timestamp":
        return types.ZONED_TIMESTAMP, _zoned, "1970-01-01T00:00:00Z"
    if kind == "date":
        if mode == "connect":
            return date(), lambda value: value, _EPOCH.date()
        return types.DATE, lambda value: value.toordinal() - _EPOCH_DAY, 0
    if kind == "time":
        if mode == "connect":
            return time(), lambda value: (_EPOCH + value % dt.timedelta(days=1)).time(), dt.time()
        return types.TIME_US, lambda value: value // _US, 0
    if mode == "connect":
        return timestamp(), lambda value: value.replace(tzinfo=dt.UTC), _EPOCH.replace(tzinfo=dt.UTC)
    if column.fraction <= 3:
        return types.TIMESTAMP_MS, lambda value: (value - _EPOCH) // _US // 1000, 0
    return types.TIMESTAMP_US, lambda value: (value - _EPOCH) // _US, 0


def _zoned(value: dt.datetime) -> str:
    text = value.isoformat()
    return (text.rstrip("0") if value.microsecond else text) + "Z"


def _int64(value: int) -> int:
    """The value as a Java long: too large values become negative."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _bits(value: Any) -> int:
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value, 2)


def _binary(mode: str, length: int) -> tuple[Schema, Convert, Any]:
    def whole(value: Any) -> bytes:
        return _bytes(value).ljust(length, b"\0")

    encode: Mapping[str, Convert] = {
        "hex": lambda value: whole(value).hex(),
        "base64": lambda value: base64.b64encode(whole(value)).decode(),
        "base64-url-safe": lambda value: base64.urlsafe_b64encode(whole(value)).decode(),
    }
    return (BYTES, whole, b"") if mode == "bytes" else (STRING, encode[mode], "")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _json(value: Any) -> str:
    """The same text for a query's and the binlog's: neither keeps the spaces that were written."""
    return json.dumps(json.loads(value), ensure_ascii=False, separators=(",", ":"))


def _uuid(value: Any) -> str:
    packed = _packed(value, 16)
    return str(uuid.UUID(bytes=packed)) if packed is not None else str(value)


def _inet4(value: Any) -> str:
    packed = _packed(value, 4)
    return str(ipaddress.IPv4Address(packed)) if packed is not None else str(value)


def _inet6(value: Any) -> str:
    """As the server writes it: addresses of version 4 in their own form."""
    packed = _packed(value, 16)
    if packed is None:
        return str(value)
    for prefix, text in ((bytes(10) + b"\xff\xff", "::ffff:"), (bytes(12), "::")):
        if packed.startswith(prefix) and packed[12:14] != b"\0\0":
            return f"{text}{ipaddress.IPv4Address(packed[12:])}"
    return str(ipaddress.IPv6Address(packed))


def _packed(value: Any, length: int) -> bytes | None:
    """The bytes that the binlog has, without zeros at their end, in place of a query's text; None for the text."""
    return _bytes(value).ljust(length, b"\0") if isinstance(value, bytes) or not value else None


_TEMPORAL: Final = frozenset({"timestamp", "date", "time", "datetime"})
_SHAPES: Final = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon")
_BLOBS: Final = ("tinyblob", "blob", "mediumblob", "longblob")
_BINARY: Final = frozenset({"binary", "varbinary", "vector", *_BLOBS, *_SHAPES, "geometrycollection", "geomcollection"})
_INTEGERS: Final = {
    "tinyint": (INT16, INT16),
    "smallint": (INT16, INT32),
    "mediumint": (INT32, INT32),
    "int": (INT32, INT64),
}
_PLAIN: Final[Mapping[str, tuple[Schema, Convert, Any]]] = {
    "float": (FLOAT32, float, 0.0),
    "double": (FLOAT64, float, 0.0),
    "year": (types.YEAR, int, 1970),
    "json": (types.JSON, _json, "{}"),
    "uuid": (STRING, _uuid, ""),
    "inet4": (STRING, _inet4, ""),
    "inet6": (STRING, _inet6, ""),
}
