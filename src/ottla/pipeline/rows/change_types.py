"""PURE: the columns of a captured table, by Connect's schema in a change event, and how their values are read.

A value is read by the schema of its own record, and turned into the type of its column: a table may have been altered
between two records. What does not fit the column exactly is refused.

    Decimal -> DECIMAL    VariableScaleDecimal -> STRING    Json, Uuid, Xml, Enum ... -> STRING
    Date -> DATE    Timestamp, MicroTimestamp, NanoTimestamp -> TIMESTAMP_NTZ    ZonedTimestamp -> TIMESTAMP
    Time, MicroTime, NanoTime -> STRING, as 23:59:59.25 (databases have times of 24 hours and more)

Other names of Connect and Debezium only describe the type that they stand beside.
Source: Debezium 3.2, packages `io.debezium.time` and `io.debezium.data`; KIP-26.
"""

import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Schema: TypeAlias = Mapping[str, Any]
"""A schema as Kafka's JsonConverter writes it: `{"type": "int64", "optional": true, "name": ..., "field": ...}`."""
Read: TypeAlias = Callable[[Any], Any]
"""A value of the JSON, which is not null, to one of its column. Raises ValueError or TypeError."""

_CONNECT: Final = "org.apache.kafka.connect.data."
_TIME: Final = "io.debezium.time."
DECIMAL: Final = f"{_CONNECT}Decimal"
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
ZONED_TIMESTAMP: Final = f"{_TIME}ZonedTimestamp"
_DATES: Final = frozenset({f"{_CONNECT}Date", f"{_TIME}Date"})
_TIMESTAMPS: Final = {
    f"{_CONNECT}Timestamp": 1_000_000,
    f"{_TIME}Timestamp": 1_000_000,
    f"{_TIME}MicroTimestamp": 1_000,
    f"{_TIME}NanoTimestamp": 1,
}
"""Numbers of so many nanoseconds each."""
_TIMES: Final = {
    f"{_CONNECT}Time": 1_000_000,
    f"{_TIME}Time": 1_000_000,
    f"{_TIME}MicroTime": 1_000,
    f"{_TIME}NanoTime": 1,
}
_PRIMITIVES: Final[dict[str, DataType]] = {
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_MOST_DIGITS: Final = 38
_MOST_SCALE: Final = 20_000
"""More digits after the point than PostgreSQL's numeric can have."""
_LARGEST_EXPONENT: Final = 131_072
"""More digits before the point than PostgreSQL's numeric can have: a short number must not become gigabytes of text."""
_MOST_NESTED: Final = 50
_DAYS: Final = range(-719_162, 2_932_897)
"""The years 1 to 9999, as days since 1970: all that Spark promises to know."""
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_NOT_SENT: Final = "__debezium_unavailable_value"
_NOT_SENT_FORMS: Final = (
    _NOT_SENT,
    binascii.b2a_base64(_NOT_SENT.encode(), newline=False).decode(),
    f'{{"{_NOT_SENT}":"{_NOT_SENT}"}}',
    [_NOT_SENT],
    list(_NOT_SENT.encode()),
)


def is_not_sent(value: Any) -> bool:
    """Whether a value only stands for one that PostgreSQL stores out of line and did not send, as it is unchanged."""
    return value in _NOT_SENT_FORMS


def columns_of(schema: Schema) -> StructType:
    """The columns of a row's schema. Each may be null: a delete knows the key alone. Raises ValueError."""
    if schema.get("type") != "struct":
        raise ValueError("the rows of the change events are no structs: this is no table of a relational database")
    return StructType([StructField(each["field"], column_type(each)) for each in schema.get("fields", ())])


def column_type(schema: Schema, depth: int = 0) -> DataType:
    """The type of a column. Raises ValueError for a type that Connect does not have."""
    kind, name = schema.get("type"), schema.get("name")
    if depth > _MOST_NESTED:
        raise ValueError(f"a schema in the change events is nested more than {_MOST_NESTED} deep")
    if name == DECIMAL:
        return _decimal_type(schema)
    if name == VARIABLE_DECIMAL or name in _TIMES:
        return StringType()
    if name in _TIMESTAMPS:
        return TimestampNTZType()
    if name in _DATES:
        return DateType()
    if name == ZONED_TIMESTAMP:
        return TimestampType()
    if kind == "struct":
        fields = schema.get("fields", ())
        return StructType([StructField(each["field"], column_type(each, depth + 1)) for each in fields])
    if kind == "array":
        return ArrayType(column_type(schema["items"], depth + 1))
    if kind == "map":
        return MapType(column_type(schema["keys"], depth + 1), column_type(schema["values"], depth + 1))
    if kind not in _PRIMITIVES:
        raise ValueError(f"a schema in the change events has the type {kind!r}, which Connect does not have")
    return _PRIMITIVES[kind]


def _decimal_type(schema: Schema) -> DataType:
    """Text if Spark's decimals have too few digits."""
    scale = _scale(schema)
    digits = (schema.get("parameters") or {}).get("connect.decimal.precision")
    precision = max(_MOST_DIGITS if digits is None else int(digits), scale)
    if scale < 0:  # numeric(3, -2): zeros before the point
        precision, scale = precision - scale, 0
    return DecimalType(precision, scale) if precision <= _MOST_DIGITS else StringType()


def _scale(schema: Schema) -> int:
    return int((schema.get("parameters") or {}).get("scale", 0))


def reader(schema: Schema, wanted: DataType) -> Read:
    """What reads values of a record's schema into a column of the type `wanted`."""
    kind, name = schema.get("type"), schema.get("name")
    if name == DECIMAL:
        return _decimals(_base64_decimal(_scale(schema)), wanted)
    if name == VARIABLE_DECIMAL:
        return _decimals(lambda value: _base64_decimal(int(value["scale"]))(value["value"]), wanted)
    if isinstance(wanted, DecimalType):
        return _number
    if name in _TIMES and isinstance(wanted, StringType):
        return lambda value: _time_text(_whole(value) * _TIMES[name] // 1_000)
    if isinstance(wanted, TimestampType | TimestampNTZType):
        return _timestamps(name)
    if isinstance(wanted, DateType) and name in _DATES:
        return lambda value: _in_range(_whole(value), 1)
    if isinstance(wanted, ArrayType) and kind == "array":
        item = _or_null(reader(schema["items"], wanted.elementType))
        return lambda value: [item(each) for each in _of(list, value)]
    if isinstance(wanted, MapType) and kind == "map":
        return _map(reader(schema["keys"], wanted.keyType), _or_null(reader(schema["values"], wanted.valueType)))
    if isinstance(wanted, StructType) and kind == "struct":
        return _struct(schema, wanted)
    return _plain_reader(wanted, from_text=kind == "string")


def plain_schema(wanted: DataType) -> Schema:
    """The schema of values in JSON without schemas: all that is known is the type of their column."""
    if isinstance(wanted, TimestampType | TimestampNTZType):
        return {"type": "string", "name": ZONED_TIMESTAMP}
    if isinstance(wanted, DateType):
        return {"type": "int32", "name": f"{_TIME}Date"}
    if isinstance(wanted, ArrayType):
        return {"type": "array", "items": plain_schema(wanted.elementType)}
    if isinstance(wanted, MapType):
        return {"type": "map", "keys": plain_schema(wanted.keyType), "values": plain_schema(wanted.valueType)}
    if isinstance(wanted, StructType):
        fields = [{**plain_schema(each.dataType), "field": each.name} for each in wanted.fields]
        return {"type": "struct", "fields": fields}
    kind = next((kind for kind, like in _PRIMITIVES.items() if like == wanted), "string")
    return {"type": kind}


def _decimals(read: Callable[[Any], Decimal], wanted: DataType) -> Read:
    if isinstance(wanted, StringType):
        return lambda value: format(read(value), "f")
    if isinstance(wanted, DoubleType | FloatType):
        return lambda value: float(read(value))
    if isinstance(wanted, DecimalType):
        return read
    return _misfit


def _base64_decimal(scale: int) -> Callable[[Any], Decimal]:
    """The unscaled number as bytes, or with `decimal.format=NUMERIC` the number itself."""

    def read(value: Any) -> Decimal:
        if not isinstance(value, str):
            return _number(value)
        if abs(scale) > _MOST_SCALE:
            raise ValueError
        unscaled = int.from_bytes(_bytes(value), "big", signed=True)
        return Decimal(f"{unscaled}e{-scale}")

    return read


def _number(value: Any) -> Decimal:
    """A number, or its text (`decimal.handling.mode=string`)."""
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError
    try:
        found = Decimal(value)
    except InvalidOperation:
        raise ValueError from None
    if not found.is_finite() or abs(found.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError
    return found


def _timestamps(name: str | None) -> Read:
    """Microseconds since 1970."""
    if name in _TIMESTAMPS:
        nanoseconds = _TIMESTAMPS[name]
        return lambda value: _in_range(_whole(value) * nanoseconds // 1_000, _DAY_US)
    if name == ZONED_TIMESTAMP:
        return lambda value: _in_range(_iso_us(_of(str, value)), _DAY_US)
    return _misfit


def _iso_us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _US


def is_in_known_years(us: int) -> bool:
    """Whether so many microseconds since 1970 are a time of the years 1 to 9999."""
    return us // _DAY_US in _DAYS


def _in_range(value: int, per_day: int) -> int:
    if value // per_day not in _DAYS:
        raise ValueError
    return value


def _time_text(us: int) -> str:
    seconds, fraction = divmod(abs(us), 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return ("-" if us < 0 else "") + text + (f".{fraction:06}".rstrip("0") if fraction else "")


def _map(key: Read, item: Read) -> Read:
    """Maps are objects, or lists of pairs if their keys are no texts."""

    def read(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, dict) else _of(list, value)
        return [(key(each), item(of_it)) for each, of_it in pairs]

    return read


def _struct(schema: Schema, wanted: StructType) -> Read:
    own = {each["field"]: each for each in schema.get("fields", ())}
    fields = [
        (each.name, _or_null(reader(own[each.name], each.dataType))) for each in wanted.fields if each.name in own
    ]

    def read(value: Any) -> dict[str, Any]:
        given = _of(dict, value)
        return {name: of_field(given.get(name)) for name, of_field in fields}

    return read


def _or_null(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _plain_reader(wanted: DataType, *, from_text: bool) -> Read:
    """Values whose schema has no name that matters. Numbers may become text: the column may have been altered."""
    if isinstance(wanted, StringType):
        return _text
    if isinstance(wanted, BooleanType):
        return lambda value: _of(bool, value)
    if isinstance(wanted, ByteType | ShortType | IntegerType | LongType):
        return _whole
    if isinstance(wanted, DoubleType | FloatType):
        return _float
    if isinstance(wanted, BinaryType):
        return _bytes if not from_text else _misfit
    return _misfit


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    text: str = _of(str, value)
    return text


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    number: int = _of(int, value)
    return number


def _float(value: Any) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | Decimal) or value in ("NaN", "Infinity", "-Infinity")):
        raise TypeError
    return float(value)


def _bytes(value: Any) -> bytes:
    return binascii.a2b_base64(_of(str, value), strict_mode=True)


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _misfit(_value: Any) -> Any:
    raise TypeError
