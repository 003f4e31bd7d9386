"""PURE: Arrow's types as Connect's, and back."""

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from ottla.connect import schema as connect
from ottla.connect.api import ConnectError
from ottla.connect.schema import Field, Schema, Type

Convert = Callable[[Any], Any]

_PLAIN: Final = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_NAMED: Final = {connect.DATE: pa.date32(), connect.TIME: pa.time32("ms"), connect.TIMESTAMP: pa.timestamp("ms", "UTC")}
_DECIMAL_DIGITS: Final = 38


def arrow_type(schema: Schema) -> Any:
    """The Arrow type of values with this schema."""
    if schema.name == connect.DECIMAL:
        return pa.decimal128(_DECIMAL_DIGITS, int((schema.parameters or {}).get("scale", 0)))
    if schema.name in _NAMED:
        return _NAMED[schema.name]
    if schema.type is Type.ARRAY and schema.items is not None:
        return pa.list_(arrow_type(schema.items))
    if schema.type is Type.MAP and schema.keys is not None and schema.items is not None:
        return pa.map_(arrow_type(schema.keys), arrow_type(schema.items))
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(each.name, arrow_type(each.schema), each.schema.optional) for each in schema.fields])
    return _PLAIN[schema.type]


def table(values: list[Any], schema: Schema | None) -> Any:
    """Values that are structs as a table. Raises ConnectError if they fit no one schema."""
    try:
        if schema is None:
            return pa.Table.from_pylist(values)
        fields = [pa.field(each.name, arrow_type(each.schema), each.schema.optional) for each in schema.fields]
        return pa.Table.from_pylist(values, schema=pa.schema(fields))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
        raise ConnectError(
            f"the records do not fit one table: {error}; give them a schema, or use format=jsonl"
        ) from error


def connect_schema(of: Any, *, optional: bool = True) -> tuple[Schema, Convert | None]:
    """Connect's schema of an Arrow type, and what turns Arrow's Python values into its own."""
    made, convert = _schema_of(of)
    return (made.as_optional() if optional else made), convert


def row_schema(columns: Any) -> Schema:
    """The schema of rows of a table with these columns."""
    fields = tuple(Field(each.name, connect_schema(each.type, optional=each.nullable)[0]) for each in columns)
    return Schema(Type.STRUCT, fields=fields)


def in_microseconds(batch: Any) -> Any:
    """A batch whose times have no nanoseconds, which no type of Connect's can hold."""
    if not any(pa.types.is_timestamp(each.type) and each.type.unit == "ns" for each in batch.schema):
        return batch
    fields = [
        each.with_type(pa.timestamp("us", each.type.tz))
        if pa.types.is_timestamp(each.type) and each.type.unit == "ns"
        else each
        for each in batch.schema
    ]
    return pa.Table.from_batches([batch]).cast(pa.schema(fields), safe=False)


def _schema_of(of: Any) -> tuple[Schema, Convert | None]:
    kinds = pa.types
    if kinds.is_decimal(of):
        return connect.decimal(of.scale), None
    if kinds.is_timestamp(of):
        return connect.timestamp(), _aware
    if kinds.is_list(of) or kinds.is_large_list(of):
        return connect.array(connect_schema(of.value_type)[0]), None
    if kinds.is_struct(of):
        return Schema(Type.STRUCT, fields=row_schema(of).fields), None
    plain: tuple[tuple[Callable[[Any], bool], Schema], ...] = (
        (kinds.is_boolean, connect.BOOLEAN),
        (kinds.is_int8, connect.INT8),
        (lambda each: kinds.is_int16(each) or kinds.is_uint8(each), connect.INT16),
        (lambda each: kinds.is_int32(each) or kinds.is_uint16(each), connect.INT32),
        (kinds.is_integer, connect.INT64),
        (kinds.is_float32, connect.FLOAT32),
        (kinds.is_floating, connect.FLOAT64),
        (kinds.is_date, connect.date()),
        (kinds.is_time, connect.time()),
        (lambda each: kinds.is_binary(each) or kinds.is_large_binary(each), connect.BYTES),
    )
    schema = next((schema for fits, schema in plain if fits(of)), None)
    return (schema, None) if schema is not None else (connect.STRING, str)


def _aware(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
