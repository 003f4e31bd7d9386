"""A compacted topic as a table that follows its topic: an input to join streams with.

    @job.flow(flights=clean, airlines=table("airlines", key="carrier", schema="carrier STRING, name STRING"), ...)
    def named(flights, airlines):
        return flights.join(F.broadcast(airlines), "carrier", "left")

It has a row for each key, made of the key's newest record; a record without a value deletes its key. Each micro-batch
sees the table as it is when that micro-batch begins. A micro-batch that Spark repeats after a failure sees it as it is
then: join with `left`, so that the number of rows does not depend on the table, if the sink writes each micro-batch
exactly once.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.decode_json import from_json, parse_schema
from ottla.pipeline.rows.table_source import DIRECTORY, FORMAT, REFRESH_MS, TableSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Decode = Callable[["DataFrame"], Checked]

_TABLES: Final = "tables"
"""The directory below a run's home."""
_INTERVAL: Final = re.compile(r"(\d+) *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_MS: Final = {"ms": 1, "mi": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class Table:
    """See `table`."""

    name: str
    key: tuple[str, ...]
    schema: str | None
    decode: Decode | None = None
    refresh_ms: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.name,)

    def describe(self) -> str:
        return f"table {self.name}"

    def load(self, context: RunContext) -> "DataFrame":
        """The table, as a static DataFrame that is read anew whenever it is used. Raises JobError."""
        records = newest_records(context.renamed(self.name), context, self.options, self.refresh_ms)
        rows = self._decoded(records).passed_or_fail(f"the table {self.name!r}")
        missing = [name for name in self.key if name not in rows.columns]
        if missing:
            raise JobError(
                f"table({self.name!r}) has no column {missing[0]!r}, its key; it has: {', '.join(rows.columns)}"
            )
        return rows

    def _decoded(self, records: "DataFrame") -> Checked:
        if self.decode is not None:
            return self.decode(records)
        assert self.schema is not None
        columns = parse_schema(self.schema).names
        if len(self.key) == 1 and self.key[0] not in columns:
            (name,) = self.key
            return from_json(records.withColumn(name, F.col("key").cast("string")), self.schema, keep=(name,))
        return from_json(records, self.schema)


def newest_records(topic: str, context: RunContext, options: Mapping[str, str], refresh_ms: int = 0) -> "DataFrame":
    """The newest record of each key of a topic, in a static DataFrame that is read anew whenever it is used."""
    context.spark.dataSource.register(TableSource)
    return (
        context.spark.read.format(FORMAT)
        .options(
            **{
                "subscribe": topic,
                "includeHeaders": "true",
                "kafka.isolation.level": "read_committed",
                **context.connection(),
                **options,
                DIRECTORY: str((context.home / _TABLES / topic).absolute()),
                REFRESH_MS: str(refresh_ms),
            }
        )
        .load()
    )


def table(
    topic: str,
    *,
    key: str | tuple[str, ...],
    schema: str | None = None,
    decode: Decode | None = None,
    refresh: str = "0 seconds",
    **options: object,
) -> Table:
    """A compacted topic as a table, with a row for each key.

    `schema` names the columns in its JSON values; `decode` is a function from records to rows for others
    (`lambda records: from_avro(records, ...)`). `key` names the columns that identify rows; one that is not in the
    schema is the text of the record's key. `refresh` is for how long a table may be used without asking for news;
    without it, every micro-batch asks. Any option of the format `ottla` for batches may follow.

    A record that cannot be decoded fails the query that uses the table, by name. Raises JobError.
    """
    if not topic.strip():
        raise JobError(f"table({topic!r}): a table is made of a topic, such as table('airlines', key='carrier', ...)")
    if (schema is None) == (decode is None):
        raise JobError(f"table({topic!r}) needs either a schema of its JSON values, or decode=, a function")
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names:
        raise JobError(f"table({topic!r}): key names the columns that identify its rows")
    found = _INTERVAL.fullmatch(refresh.strip())
    if found is None:
        raise JobError(f"table({topic!r}): refresh is an interval such as '30 seconds', not {refresh!r}")
    unit = found[2] if found[2] in _MS else found[2][:2] if found[2].startswith("mil") else found[2][:1]
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return Table(topic, names, schema, decode, int(found[1]) * _MS[unit], texts)
