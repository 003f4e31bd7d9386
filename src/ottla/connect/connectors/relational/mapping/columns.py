"""PURE: Connect's schemas as columns of a table, and their values as a database takes them.

Debezium's types are understood too, so that captured changes become rows again.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, Final

from sqlalchemy import (
    CHAR,
    JSON,
    REAL,
    BigInteger,
    Boolean,
    Date,
    DateTime,
    Double,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    String,
    Text,
    Time,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.sql.sqltypes import _Binary
from sqlalchemy.types import NullType, TypeEngine

from ottla.connect import schema as connect
from ottla.connect.connectors.capture.times import INFINITY_MS, MINUS_INFINITY_MS
from ottla.connect.schema import Schema, Type

KEY_CHARACTERS: Final = 255
"""Length of a text in a key: MySQL cannot have keys of any length."""

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (columns without a zone)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()

_EXACT: Final = Context(prec=1 << 18)
"""More digits than any database's decimals have: Python's own context rounds to 28."""
_DAY_US: Final = 86_400_000_000
_INFINITE: Final = {INFINITY_MS: "infinity", MINUS_INFINITY_MS: "-infinity"}
_INFINITE_DAYS: Final = {2_147_483_647: "infinity", -2_147_483_648: "-infinity"}
"""As Debezium writes PostgreSQL's, and as PostgreSQL reads them; other databases refuse the word."""

_EXACT_SINCE: Final = (8, 0, 17)
"""The MySQL whose utf8mb4_0900_bin keeps blanks; before, no collation of it does."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a field becomes: the column's type, the value in it (of what is not null), and its default, or None."""

    type: TypeEngine[Any]
    convert: Convert | None = None
    default: Any = None


_DATETIME: Final = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_ZONED: Final = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_TIME: Final = Time().with_variant(mysql.TIME(fsp=6), "mysql", "mariadb")
_JSON: Final = Text().with_variant(postgresql.JSONB(), "postgresql").with_variant(mysql.JSON(), "mysql", "mariadb")
_UUID: Final = String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def _numeric(scale: int) -> TypeEngine[Any]:
    """SQLite has no decimals: a text keeps every digit."""
    return (
        Numeric(None, None)
        .with_variant(Text(), "sqlite")
        .with_variant(mysql.DECIMAL(65, min(scale, 30)), "mysql", "mariadb")
    )


def as_json(value: Any) -> str:
    """Lists, maps and structs; what JSON does not know becomes text."""
    return json.dumps(
        value, ensure_ascii=False, default=lambda each: each.hex() if isinstance(each, bytes) else str(each)
    )


def _us(value: int) -> dt.datetime | str:
    return _INFINITE.get(value) or _EPOCH + dt.timedelta(0, 0, value)


def _ms(value: int) -> dt.datetime | str:
    return _INFINITE.get(value) or _EPOCH + dt.timedelta(0, 0, 0, value)


def _day(value: int) -> dt.date | str:
    return _INFINITE_DAYS.get(value) or dt.date.fromordinal(value + _EPOCH_DAY)


def _time_of_us(value: int) -> dt.time | str:
    if 0 <= value < _DAY_US:
        return (_EPOCH + dt.timedelta(0, 0, value)).time()
    return _long_time(value)


def _long_time(value: int) -> str:
    """Beyond a day, or before it: PostgreSQL reads 24:00:00, MySQL up to 838:59:59; others refuse the text."""
    seconds, fraction = divmod(abs(value), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    sign = "-" if value < 0 else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{fraction:06d}"


def _zoned(value: str) -> dt.datetime | str:
    try:
        at = dt.datetime.fromisoformat(value)
    except ValueError:  # before Christ, say, or infinity: what PostgreSQL writes, it reads
        return value
    return at if at.tzinfo is None or at.tzinfo is dt.UTC else at.astimezone(dt.UTC)


def _naive(value: dt.datetime) -> dt.datetime:
    return _EPOCH + (value - _EPOCH_UTC) if value.tzinfo is not None else value  # `replace` takes four times as long


def _variable_decimal(value: Mapping[str, Any]) -> Decimal:
    return Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-value["scale"], _EXACT)


_NAMED: Final[Mapping[str, Target]] = {
    connect.DATE: Target(Date()),
    connect.TIME: Target(_TIME),
    connect.TIMESTAMP: Target(_DATETIME, _naive),
    "io.debezium.time.Date": Target(Date(), _day),
    "io.debezium.time.Time": Target(_TIME, lambda value: _time_of_us(value * 1000)),
    "io.debezium.time.MicroTime": Target(_TIME, _time_of_us),
    "io.debezium.time.Timestamp": Target(_DATETIME, _ms),
    "io.debezium.time.MicroTimestamp": Target(_DATETIME, _us),
    "io.debezium.time.ZonedTimestamp": Target(_ZONED, _zoned),
    "io.debezium.data.Json": Target(_JSON),
    "io.debezium.data.Uuid": Target(_UUID),
    "io.debezium.data.VariableScaleDecimal": Target(_numeric(9), _variable_decimal),
}
_PLAIN: Final[Mapping[Type, Target]] = {
    Type.INT8: Target(SmallInteger()),
    Type.INT16: Target(SmallInteger()),
    Type.INT32: Target(Integer()),
    Type.INT64: Target(BigInteger()),
    Type.FLOAT32: Target(Float(24)),
    Type.FLOAT64: Target(Double()),
    Type.BOOLEAN: Target(Boolean()),
    Type.STRING: Target(Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
    Type.BYTES: Target(LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")),
    Type.ARRAY: Target(_JSON, as_json),
    Type.MAP: Target(_JSON, as_json),
    Type.STRUCT: Target(_JSON, as_json),
}

UNKNOWN: Final = Target(NullType())
"""The target of a field without a schema or a value so far: no column can be made for it."""

_WITHOUT_LITERALS: Final = (_JSON, _PLAIN[Type.BYTES].type)
"""Types whose columns get no default: not all databases have literals of them."""


def target(schema: Schema) -> Target:
    """The target of a field with this schema."""
    if schema.name == connect.DECIMAL:
        found = Target(_numeric(int((schema.parameters or {}).get("scale", 0))))
    else:
        found = _NAMED.get(schema.name or "") or _PLAIN[schema.type]
    if not schema.has_default or schema.default is None or found.type in _WITHOUT_LITERALS:
        return found
    try:
        return replace(found, default=_converted(found, schema.default))
    except (ValueError, TypeError, ArithmeticError):  # beyond what Python's types can be
        return found


def _converted(found: Target, value: Any) -> Any:
    return value if found.convert is None else found.convert(value)


def target_of_value(value: Any) -> Target:
    """The target of a field without a schema, by its first value."""
    if value is None:
        return UNKNOWN
    for kind, type_ in (
        (bool, Type.BOOLEAN),
        (int, Type.INT64),
        (float, Type.FLOAT64),
        (str, Type.STRING),
        (bytes, Type.BYTES),
        (dict, Type.MAP),
        (list, Type.ARRAY),
    ):
        if isinstance(value, kind):
            return _PLAIN[type_]
    return _PLAIN[Type.STRING]


def is_loose(type_: TypeEngine[Any]) -> bool:
    """Whether PostgreSQL may hold values of a column of a key for the same that Python does not: texts without regard
    to case or to spaces at their ends, and what is rounded.
    """
    if isinstance(type_, postgresql.CITEXT | CHAR | REAL):
        return True
    if isinstance(type_, Numeric):
        return type_.scale is not None
    return isinstance(type_, postgresql.TIMESTAMP | postgresql.TIME) and type_.precision is not None


def key_type(type_: TypeEngine[Any], dialect: Any) -> TypeEngine[Any]:
    """The type in a primary key, in SQLAlchemy's dialect of a server that has been reached."""
    return key_text(KEY_CHARACTERS, dialect) if isinstance(type_, Text) else type_


def key_text(characters: int, dialect: Any) -> TypeEngine[Any]:
    """A text that is the same as another if every character is: MySQL's and MariaDB's are not by themselves."""
    if dialect.name not in ("mysql", "mariadb"):
        return String(characters)
    collation = "utf8mb4_nopad_bin"
    if not dialect.is_mariadb:
        collation = "utf8mb4_0900_bin" if dialect.server_version_info >= _EXACT_SINCE else "utf8mb4_bin"
    return mysql.VARCHAR(characters, charset="utf8mb4", collation=collation)


def is_exact(collation: str) -> bool:
    """Whether a collation of MySQL or MariaDB keeps apart all texts that differ, also in blanks at their ends."""
    return collation == "utf8mb4_0900_bin" or collation.endswith("_nopad_bin")


def source_schema(type_: TypeEngine[Any], *, nullable: bool) -> tuple[Schema, Convert | None]:
    """The way back: the schema of a column's values as SQLAlchemy returns them, and what turns them into it."""
    made, convert = _schema_of(type_)
    return (made.as_optional() if nullable else made), convert


def _schema_of(type_: TypeEngine[Any]) -> tuple[Schema, Convert | None]:
    if isinstance(type_, mysql.SET):
        members = list(type_.values)
        return connect.STRING, lambda value: ",".join(each for each in members if each in value)
    if isinstance(type_, Numeric) and not isinstance(type_, Float):
        if type_.scale is not None:
            return connect.decimal(type_.scale), _decimal_of(type_.scale)
        return connect.STRING, str
    kinds: tuple[tuple[Any, Schema, Convert | None], ...] = (
        (SmallInteger, connect.INT16, None),
        (BigInteger, connect.INT64, None),
        (Integer, connect.INT64, None),  # SQLite's are as long as they need to be
        (Float, connect.FLOAT64, float),
        (Boolean, connect.BOOLEAN, bool),
        (DateTime, connect.timestamp(), _aware),
        (Date, connect.date(), None),
        (Time, connect.time(), None),
        (_Binary, connect.BYTES, bytes),
        (JSON, connect.STRING, as_json),
    )
    return next(
        ((schema, convert) for kind, schema, convert in kinds if isinstance(type_, kind)), (connect.STRING, _text)
    )


def _decimal_of(scale: int) -> Convert:
    quantum = Decimal(1).scaleb(-scale)
    return lambda value: Decimal(value).quantize(quantum, context=_EXACT)


def _aware(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple | dict):  # PostgreSQL's arrays and hstores
        return as_json(value)
    return value if value.__class__ is str else str(value)
