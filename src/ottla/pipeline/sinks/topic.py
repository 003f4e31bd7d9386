"""Rows as records of a topic, each written exactly once whatever the output mode.

Rows with a column `value` are records already (`key`, `value`, `headers`); others become JSON objects, keyed by the
columns that the topic names.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.change_columns import COLUMNS, DELETE, OP, key_columns
from ottla.pipeline.context import CHANGES, QuerySpec, RunContext
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipeline.inputs import Topic

_RECORD: Final = ("key", "value", "headers")
_WHERE_FROM: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
"""Columns of a topic that was read; they say where a record was, not what is in it."""


def start(topic: "Topic", rows: "DataFrame", query: QuerySpec) -> "StreamingQuery":
    """Begin to write `rows`. Raises SinkError if they cannot be records, or Spark's error if there is no such topic."""
    is_of_changes = query.mode == CHANGES
    records = changes_as_records(rows) if is_of_changes else as_records(rows, topic.key, topic.describe())
    context = query.context
    options = {**context.connection(), **topic.options, "topic": context.renamed(topic.name)}
    if query.mode == "append" or is_of_changes:
        started: StreamingQuery = query.writer(records).format("ottla").options(**options).start()
        return started
    # Spark lets a Python data source append only
    return start_batches(records, query, partial(_write, {"deliveryGuarantee": "exactly-once", **options}))


def read(topic: "Topic", context: RunContext) -> "DataFrame":
    """What the topic holds now, committed records only, with the columns of Spark's Kafka source."""
    options = {**context.connection(), "kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return context.spark.read.format("ottla").options(**options).option("subscribe", context.renamed(topic.name)).load()


def as_records(rows: "DataFrame", key: tuple[str, ...], what: str) -> "DataFrame":
    """Rows with the columns `key`, `value` and, if there are any, `headers`.

    Rows without a column `value` become JSON objects of all their columns but `headers`, nulls included. Their key are
    the columns named by `key`, as text; several are joined by `/`. Raises SinkError if a column would be lost.
    """
    from pyspark.sql import functions as F

    names = rows.columns
    for name in key:
        if name not in names:
            raise SinkError(f"{what} has key '{name}', and the rows have only: {', '.join(names)}")
    if "value" in names:
        if key and "key" in names:
            raise SinkError(
                f"{what} is keyed by {', '.join(key)}, and the rows have a column 'key': leave one of them out"
            )
        lost = [name for name in names if name not in (*_RECORD, *_WHERE_FROM, *key)]
        if lost:
            raise SinkError(
                f"{what} takes key, value and headers, and column {lost[0]} would be lost: "
                "leave it out, or leave 'value' out and have all columns made a JSON object"
            )
        columns = [F.col(name) for name in _RECORD if name in names]
        return rows.select(*([_key(key).alias("key")] if key else []), *columns)
    if "key" in names and key:
        raise SinkError(f"{what} is keyed by {', '.join(key)}, and the rows have a column 'key': leave one of them out")
    inside = [F.col(f"`{name}`") for name in names if name != "headers" and (name != "key" or key)]
    value = F.to_json(F.struct(*inside), {"ignoreNullFields": "false"})
    keyed = [_key(key).alias("key")] if key else [F.col("key")] if "key" in names else []
    headers = [F.col("headers")] if "headers" in names else []
    return rows.select(*keyed, value.alias("value"), *headers)


def changes_as_records(rows: "DataFrame") -> "DataFrame":
    """Changes of a captured table as records of a compacted topic: the row as JSON, and a tombstone for a delete."""
    from pyspark.sql import functions as F

    row = F.to_json(
        F.struct(*(F.col(f"`{name}`") for name in rows.columns if name not in COLUMNS)), {"ignoreNullFields": "false"}
    )
    key = _key(key_columns(rows.schema.fields)).alias("key")
    return rows.select(key, F.when(F.col(OP) != DELETE, row).alias("value"))


def _key(names: tuple[str, ...]) -> "Column":
    """The columns as text: alone as it is, null included; several joined by `/`, so that no two keys are one.

    `%` and `/` within a value are written as `%25` and `%2F`, a null as `%null`.
    """
    from pyspark.sql import functions as F

    if len(names) == 1:
        return F.col(f"`{names[0]}`").cast("string")
    parts: list[Any] = []
    for name in names:
        text = F.col(f"`{name}`").cast("string")
        escaped = F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))
        parts.append(F.coalesce(escaped, F.lit("%null")))
    return F.concat_ws("/", *parts)


def _write(options: dict[str, str], batch: MicroBatch) -> None:
    batch.rows.write.format("ottla").options(**options).mode("append").save()
