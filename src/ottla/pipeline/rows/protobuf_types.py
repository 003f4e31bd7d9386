"""Protobuf's messages as Spark's structs, as Spark's own `from_protobuf` has them, and as rows.

    int32, sint32, sfixed32 -> INT    uint32, fixed32, int64 ... -> BIGINT    uint64, fixed64 -> DECIMAL(20,0)
    enum -> STRING (a number that has no name: its digits)    bytes -> BINARY    message -> STRUCT
    repeated -> ARRAY    map -> MAP    google.protobuf.Timestamp -> TIMESTAMP    Duration -> INTERVAL DAY TO SECOND
    google.protobuf.StringValue and the like -> what they hold, or null

A field that knows whether it was set (`optional`, messages, members of a `oneof`) is null if it was not; one that does
not has its default, as the format means it. Messages that contain themselves have no column type.
"""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.registry.undecodable import Undecodable

Convert = Callable[[Any], Any]

_SCALARS: Final[dict[int, DataType]] = {
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_NANOS_OF_MICRO: Final = 1_000
_MICROS: Final = 1_000_000


def spark_schema(message: Descriptor, inside: tuple[str, ...] = ()) -> StructType:
    """Columns of a message. Raises ValueError, naming the field, for a message that contains itself."""
    here = (*inside, message.full_name)
    return StructType([_column(field, here) for field in message.fields])


def _column(field: FieldDescriptor, inside: tuple[str, ...]) -> StructField:
    if _is_map(field):
        key, value = _entry(field)
        return StructField(field.name, MapType(_type(key, inside), _type(value, inside), False), False)
    if field.is_repeated:
        return StructField(field.name, ArrayType(_type(field, inside), False), False)
    return StructField(field.name, _type(field, inside), field.has_presence and not field.is_required)


def _type(field: FieldDescriptor, inside: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    name = message.full_name
    if name == _TIMESTAMP:
        return TimestampType()
    if name == _DURATION:
        return DayTimeIntervalType()
    if name in _WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    if name in inside:
        raise ValueError(
            f"the Protobuf field {field.full_name} is within its own message: it has no column type in Spark"
        )
    return spark_schema(message, inside)


def row_of(message: Descriptor) -> Convert:
    """How a message of this type becomes the fields of a row."""
    getters = [(field.name, _getter(field)) for field in message.fields]

    def convert(value: Any) -> dict[str, Any]:
        return {name: get(value) for name, get in getters}

    return convert


def _getter(field: FieldDescriptor) -> Convert:
    name = field.name
    if _is_map(field):
        convert = _converter(_entry(field)[1])
        return lambda message: [(key, convert(value)) for key, value in sorted(getattr(message, name).items())]
    convert = _converter(field)
    if field.is_repeated:
        return lambda message: [convert(value) for value in getattr(message, name)]
    if not field.has_presence:
        return lambda message: convert(getattr(message, name))
    return lambda message: convert(getattr(message, name)) if message.HasField(name) else None


def _converter(field: FieldDescriptor) -> Convert:
    message = field.message_type
    if message is not None:
        return _of_message(message)
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if isinstance(_SCALARS[field.type], DecimalType):
        return Decimal
    return lambda value: value


def _of_message(message: Descriptor) -> Convert:
    name = message.full_name
    if name == _TIMESTAMP:
        return lambda value: value.seconds * _MICROS + value.nanos // _NANOS_OF_MICRO
    if name == _DURATION:
        return _duration
    if name in _WRAPPERS:
        convert = _converter(message.fields_by_name["value"])
        return lambda wrapper: convert(wrapper.value)
    return row_of(message)


def _duration(value: Any) -> timedelta:
    try:
        return timedelta(seconds=value.seconds, microseconds=value.nanos // _NANOS_OF_MICRO)
    except OverflowError as error:
        raise Undecodable(f"a duration of {value.seconds} seconds is too long") from error


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    assert field.message_type is not None
    fields = field.message_type.fields_by_name
    return fields["key"], fields["value"]
