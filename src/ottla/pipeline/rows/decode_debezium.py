"""Debezium's change events to the rows of their table, and what became of each.

Decoded in Python: each record is read by the schema that it carries itself, so that a column whose scale, unit or type
was altered keeps its values.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ottla.pipeline.change_columns import COLUMNS, OFFSET, PARTITION
from ottla.pipeline.rows.change_events import UNKNOWN, ChangeEvents, event_schema
from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.decode_json import parse_schema
from ottla.pipeline.rows.python_decoding import decode_column
from ottla.registry.client import Registry

HAS_KEY = "__ottla_has_key"
"""Whether the record has a key."""


def from_debezium(
    records: DataFrame, schema: StructType | str, *, registry: Registry | None = None, keep: tuple[str, ...] = ()
) -> Checked:
    """The change event in `value` as columns of `schema`, beside those named in `keep`: JSON with schemas or without,
    or Avro in the wire format of a `registry`.

    The row is that after the change, or before it if it was deleted. `_op` is c, u, d or r; `_ts` when the database
    made the change; `_partition` and `_offset` its place in the topic. Tombstones are left out. A field that is NOT
    NULL in the schema is required, except in deletes, which know the key alone. In JSON without schemas, decimals are
    texts or numbers (`decimal.handling.mode`), and times are texts.

    Raises ValueError for a schema that names one of those columns, or one of `keep`.
    """
    columns = parse_schema(schema)
    return decoded_changes(records, columns, registry=registry, keep=keep).select(
        *keep, *quoted(columns.names), *COLUMNS
    )


def decoded_changes(
    records: DataFrame,
    columns: StructType,
    *,
    registry: Registry | None = None,
    keep: tuple[str, ...] = (),
    truncates: bool = False,
) -> Checked:
    """As `from_debezium`, with two more columns: `UNKNOWN` and `HAS_KEY`. With `truncates`, those are rows, too."""
    written = event_schema(columns)
    # nullable as rows of deletes are
    shape = StructType([StructField(each.name, each.dataType) for each in written.fields])
    placed = records.where("value IS NOT NULL").withColumns(
        {PARTITION: F.col("partition"), OFFSET: F.col("offset"), HAS_KEY: F.col("key").isNotNull()}
    )
    own = (*keep, PARTITION, OFFSET, HAS_KEY)
    return decode_column(placed, shape, ChangeEvents(columns.json(), truncates, registry), column="value", keep=own)


def quoted(names: list[str]) -> list[str]:
    """Names of columns as Spark takes them whatever characters they have."""
    return [f"`{name}`" for name in names]


__all__ = ["HAS_KEY", "UNKNOWN", "decoded_changes", "from_debezium", "quoted"]
