"""PURE: Avro's types as Spark's, as Spark's own `from_avro` has them.

    record -> STRUCT    array -> ARRAY    map -> MAP    enum -> STRING    fixed -> BINARY
    [null, x] -> x, nullable    [int, long] -> BIGINT    [float, double] -> DOUBLE
    date -> DATE    timestamp-* -> TIMESTAMP    local-timestamp-* -> TIMESTAMP_NTZ    decimal -> DECIMAL
    uuid, time-* -> what they are stored as

Unions of other types, and records that contain themselves, have no column type: they are refused by name.
Source: Apache Avro 1.12 specification.
"""

from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "bytes": BinaryType(),
    "double": DoubleType(),
    "enum": StringType(),
    "fixed": BinaryType(),
    "float": FloatType(),
    "int": IntegerType(),
    "long": LongType(),
    "null": NullType(),
    "string": StringType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
_MOST_DIGITS: Final = 38
KEPT_AS_STORED: Final = frozenset({"time-millis", "time-micros", "uuid"})
"""Logical types without a type in Spark: the reader is not to turn them into something else."""
_WIDER: Final = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}


def spark_schema(schema: Any, named: dict[str, Any]) -> StructType:
    """Columns of a parsed schema. `named` are all its named types. Raises ValueError, naming the field."""
    top = named.get(schema, schema) if isinstance(schema, str) else schema
    if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
        raise ValueError("an Avro schema of rows is a record; this one is not")
    return _record(top, named, ())


def _record(schema: dict[str, Any], named: dict[str, Any], inside: tuple[str, ...]) -> StructType:
    name = schema["name"]
    if name in inside:
        raise ValueError(f"the Avro record {name} contains itself: it has no column type in Spark")
    fields = []
    for field in schema["fields"]:
        try:
            kind, nullable = _type(field["type"], named, (*inside, name))
        except _NoTypeError as error:
            raise ValueError(f"the Avro field {name}.{field['name']} {error}") from None
        fields.append(StructField(field["name"], kind, nullable))
    return StructType(fields)


class _NoTypeError(Exception):
    """A type that Spark lacks; the text describes it, for the message about its field."""


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> tuple[DataType, bool]:
    """The type, and whether it may be null."""
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema], schema == "null"
        return _type(named[schema], named, inside)
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named, inside), False
    if kind == "array":
        element, nullable = _type(schema["items"], named, inside)
        return ArrayType(element, nullable), False
    if kind == "map":
        value, nullable = _type(schema["values"], named, inside)
        return MapType(StringType(), value, nullable), False
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema), False
    return _LOGICAL.get(logical) or _type(kind, named, inside)[0], False


def _decimal(schema: dict[str, Any]) -> DecimalType:
    if schema["precision"] > _MOST_DIGITS:
        raise _NoTypeError(f"has {schema['precision']} digits, Spark's decimals have at most {_MOST_DIGITS}")
    return DecimalType(schema["precision"], schema.get("scale", 0))


def _union(branches: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> tuple[DataType, bool]:
    others = [branch for branch in branches if branch != "null"]
    nullable = len(others) < len(branches)
    if len(others) == 1:
        return _type(others[0], named, inside)[0], nullable
    wider = _WIDER.get(frozenset(branch for branch in others if isinstance(branch, str)))
    if wider is not None and len(others) == 2:
        return wider, nullable
    if not others:
        return NullType(), True
    raise _NoTypeError("is a union of several types: it has no column type in Spark")
