"""The columns of a topic, the same as those of Spark's own Kafka source and sink."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.errors import OptionError

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def read_schema(include_headers: bool) -> StructType:
    """Columns of a read: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType` and, if asked
    for, `headers`."""
    fields = list(_COLUMNS.fields)
    if include_headers:
        fields.append(StructField("headers", _HEADERS))
    return StructType(fields)


def check_write_schema(schema: StructType, topic: str | None) -> None:
    """Refuse a DataFrame that cannot become records.

    Raises OptionError if `value` is absent, a column has a type the sink cannot write, or neither the option nor a
    column names the topic.
    """
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise OptionError(f"the sink needs a column 'value'; there are only: {', '.join(types)}")
    if topic is None and "topic" not in types:
        raise OptionError("set the option 'topic', or give each row its topic in a column 'topic'")
    text_or_bytes = (StringType, BinaryType)
    _check_type(types, "key", text_or_bytes)
    _check_type(types, "value", text_or_bytes)
    _check_type(types, "topic", (StringType,))
    _check_type(types, "partition", (IntegerType,))
    headers = types.get("headers")
    if headers is not None and headers.simpleString() != _HEADERS.simpleString():
        raise OptionError(
            f"column 'headers' must be {_HEADERS.simpleString()} to be written, it is {headers.simpleString()}"
        )


def _check_type(types: dict[str, DataType], column: str, allowed: tuple[type[DataType], ...]) -> None:
    found = types.get(column)
    if found is not None and not isinstance(found, allowed):
        wanted = " or ".join(kind.typeName() for kind in allowed)
        raise OptionError(f"column '{column}' must be {wanted} to be written, it is {found.simpleString()}")
