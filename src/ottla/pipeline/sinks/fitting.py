"""Do rows fit a table? Compared as Arrow schemas, in which Spark, Iceberg, Delta and Parquet meet."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.pipeline.change_columns import COLUMNS, VALID_FROM, VALID_TO, key_columns
from ottla.pipeline.context import CHANGES, HISTORY
from ottla.pipeline.sinks.base import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TIME = pa.timestamp("us", "UTC")
"""The type of `valid_from` and `valid_to`."""
_PARTITION_TYPES = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date)


def table_of(rows: "StructType", mode: str, key: tuple[str, ...], what: str) -> tuple[pa.Schema, tuple[str, ...]]:
    """The schema of the table that holds such rows, and its key. Raises SinkError.

    The table of changes lacks the columns that only a change has; the changes name its key. A table of all versions has
    two more: the times at which each began and ended.
    """
    if mode not in (CHANGES, HISTORY):
        return arrow_schema(rows, what), key
    fields = [field for field in rows.fields if field.name not in COLUMNS]
    schema = arrow_schema(type(rows)(fields), what)
    if mode == HISTORY:
        for name in (VALID_FROM, VALID_TO):
            schema = schema.append(pa.field(name, TIME))
    return schema, key_columns(fields)


def arrow_schema(rows: "StructType", what: str) -> pa.Schema:
    """The schema that Arrow batches of these rows have, with timestamps in UTC. Raises SinkError."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import NullType

    for field in rows.fields:
        if isinstance(field.dataType, NullType):
            raise SinkError(f"{what} cannot have a column '{field.name}' that is always null: cast it to a type")
    try:
        schema = to_arrow_schema(rows, timezone="UTC")
    except PySparkException as error:
        raise SinkError(f"{what} cannot take these rows: {error}") from error
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        raise SinkError(f"{what} cannot have two columns of one name: {', '.join(repeated)}")
    return schema


def check_partitioning(schema: pa.Schema, partition_by: tuple[str, ...], what: str) -> None:
    """Partition columns have to be there, and of a type that has one spelling. Raises SinkError."""
    for name in partition_by:
        kind = field_type(schema, name, what, "partition_by")
        if not any(is_kind(kind) for is_kind in _PARTITION_TYPES):
            raise SinkError(
                f"{what} cannot be partitioned by '{name}', which is {kind}: "
                "use a column of text, whole numbers, booleans or dates"
            )
    if set(partition_by) == set(schema.names):
        raise SinkError(f"{what} needs a column besides those it is partitioned by")


def check_key(schema: pa.Schema, key: tuple[str, ...], mode: str, what: str) -> None:
    """Rows that change need a key. Raises SinkError."""
    for name in key:
        field_type(schema, name, what, "key")
    if mode in ("update", CHANGES, HISTORY) and not key:
        raise SinkError(f"{what} needs key=... in mode '{mode}': the columns that identify the changed row")


def field_type(schema: pa.Schema, name: str, what: str, role: str) -> Any:
    """The column's type. Raises SinkError if there is none of that name."""
    if name not in schema.names:
        raise SinkError(f"{what} has {role} '{name}', and the rows have only: {', '.join(schema.names)}")
    return schema.field(name).type


def check_fit(table: pa.Schema, rows: pa.Schema, what: str) -> None:
    """Same columns, same types, in any order. Raises SinkError with every difference."""
    found = [
        *(f"column '{name}' is not in the table" for name in rows.names if name not in table.names),
        *(f"the table's column '{name}' is not in the rows" for name in table.names if name not in rows.names),
    ]
    found += [
        f"column '{name}' is {table.field(name).type} in the table and {rows.field(name).type} here"
        for name in rows.names
        if name in table.names and plain(table.field(name).type) != plain(rows.field(name).type)
    ]
    if found:
        raise SinkError(
            f"{what} has other columns than the rows: {'; '.join(found)}. "
            "Nothing was written. Change the table or the job, or write to another table"
        )


def plain(kind: Any) -> Any:
    """A type without what does not matter for its values: large and view layouts, names and nullability of items."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()  # Iceberg knows no shorter ones
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), pa.field("value", plain(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind
