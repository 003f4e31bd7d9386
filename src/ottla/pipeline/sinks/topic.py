"""Rows as records of a topic, each written exactly once whatever the output mode.

Rows with a column `value` are records already (`key`, `value`, `headers`); others become JSON objects, keyed by the
columns that the topic names.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.change_columns import COLUMNS, DELETE, OP, key_columns
from ottla.pipeline.context import CHANGES, QuerySpec, RunContext
from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.batches import MicroBatch, start_batches
from ottla.pipeline.sinks.changes import newest_rows
from ottla.spark.metadata import TopicMetadata
from ottla.spark.options import ReadOptions
from ottla.spark.selection import Topics
from ottla.waiting import tries

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipeline.corrections import Corrections
    from ottla.pipeline.inputs import Topic

_RECORD: Final = ("key", "value", "headers")
_RECORD_KEY: Final = "__ottla_key"
_RECORD_VALUE: Final = "__ottla_value"
_ISOLATION: Final = "kafka.isolation.level"
_SETTLED_WITHIN_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.1
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


def correct(topic: "Topic", batch: MicroBatch, corrections: "Corrections", context: RunContext) -> int:
    """Merge late rows into the newest records of their keys, in one transaction, unless it was made before; how many.

    Raises SinkError if a transaction is open that may hide some of those records.
    """
    from ottla.pipeline.rows.late import write_late_once
    from ottla.pipeline.sinks.fitting import arrow_schema

    what, name = topic.describe(), context.renamed(topic.name)
    late = newest_rows(batch.rows.toArrow().cast(arrow_schema(batch.rows.schema, what)), topic.key, what)
    if not late.num_rows:
        return 0
    _wait_until_settled(name, {**context.connection(), **topic.options})
    rows: DataFrame = context.spark.createDataFrame(late, batch.rows.schema)
    merged = corrections.merge(_written(topic, rows, corrections, context).toArrow(), late)
    corrected: DataFrame = context.spark.createDataFrame(merged, batch.rows.schema)
    return write_late_once(as_records(corrected, topic.key, what), context, name, batch)


def _written(topic: "Topic", late: "DataFrame", corrections: "Corrections", context: RunContext) -> "DataFrame":
    """The newest records of the keys of late rows, as rows: the key as the late rows have it, and what is merged.

    Records are found by their own keys: JSON has times in milliseconds.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from ottla.pipeline.rows.table import newest_records

    merged = StructType([late.schema[name] for name in corrections.merged_columns])
    records = newest_records(context.renamed(topic.name), context, topic.options)
    value = F.from_json(F.col("value").cast("string"), merged, {"mode": "FAILFAST"})
    found = records.select(F.col("key").cast("string").alias(_RECORD_KEY), value.alias(_RECORD_VALUE))
    wanted = late.select(_key(topic.key).alias(_RECORD_KEY), *(F.col(f"`{name}`") for name in topic.key))
    joined = found.join(F.broadcast(wanted), _RECORD_KEY)
    return joined.select(*(F.col(f"`{name}`") for name in topic.key), f"{_RECORD_VALUE}.*")


def _wait_until_settled(name: str, options: Mapping[str, str]) -> None:
    """Wait until all records that are in the topic now can be read: an open transaction hides those behind its first.

    Raises SinkError if one stays open.
    """
    asked = {name: value for name, value in options.items() if name.lower() != _ISOLATION}
    kinds = (asked, {**asked, _ISOLATION: "read_committed"})
    written, readable = (
        TopicMetadata(ReadOptions.parse({**kind, "subscribe": name}, streaming=False).client) for kind in kinds
    )
    partitions = written.layout(Topics((name,))).partitions
    ends = written.latest(partitions)
    for _ in tries(_SETTLED_WITHIN_S, every_s=_LOOK_AGAIN_S):
        ready = readable.latest(partitions)
        behind = [each for each, end in ends.items() if ready[each] < end]
        if not behind:
            return
    raise SinkError(
        f"late rows cannot be merged into {behind[0]}: an open transaction of another producer hides records that were "
        f"written after it began; `ottla txn list` shows it"
    )


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
