"""A captured table as an input: the change events of a topic, with columns by the schema that they carry.

    job.apply_changes(captured("shop.public.customers"), into=delta("customers"))

The newest change in the topic describes the table when the run starts. Older changes are read by their own schemas. A
column that is added while the run goes on fails the query rather than being lost; the next start of the run has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.pipeline import failures
from ottla.pipeline.change_columns import (
    KEY_METADATA,
    KEYLESS_METADATA,
    OFFSET,
    OP,
    PARTITION,
    TRUNCATE,
    TRUNCATES_METADATA,
    TS,
)
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import GROUP, Topic, as_text, topic
from ottla.pipeline.rows.change_events import UNKNOWN, Described, describe
from ottla.pipeline.rows.change_types import columns_of
from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.decode_debezium import HAS_KEY, decoded_changes, quoted
from ottla.pipeline.rows.decode_json import parse_schema
from ottla.registry.client import Registry, RegistryError
from ottla.registry.undecodable import Undecodable
from ottla.spark.errors import SourceError
from ottla.spark.fetch import read_range
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets, OffsetRange
from ottla.spark.options import ReadOptions
from ottla.spark.schema import read_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST_LOOK: Final = 100
"""Offsets at the end of a partition among which the newest change is looked for first."""


@dataclass(frozen=True, slots=True)
class Captured:
    """See `captured`."""

    topic: Topic
    schema: str | None = None
    truncates: bool = False
    registry: Registry | None = None

    @property
    def name(self) -> str:
        """The topic's name, under which the query for its dead letters runs."""
        return self.topic.name

    @property
    def topics(self) -> tuple[str, ...]:
        return self.topic.topics

    def describe(self) -> str:
        return f"captured {self.topic.describe().removeprefix('topic ')}"

    def commits(self, context: RunContext) -> bool:
        """Whether its offsets are committed to a consumer group."""
        return self.topic.commits(context)

    def load(self, context: RunContext) -> Checked:
        """The changes as a stream. Raises JobError if the topic does not tell the columns of the table."""
        return self.decode(self.topic.load(context), context)

    def decode(self, records: "DataFrame", context: RunContext) -> Checked:
        """The changes in these records. Raises JobError as `load`."""
        newest = self._newest(context)
        columns = self._columns(newest)
        try:
            made = decoded_changes(records, columns, registry=self.registry, truncates=self.truncates)
        except ValueError as error:
            raise JobError(f"{self}: {error}") from None
        if self.schema is None:
            made = made.check("the table has the columns of the run", self._has_columns(newest.ends))
        if newest.found is not None and newest.found.has_key:
            made = made.check(
                "the record has a key, as the newest change has", F.col(HAS_KEY) | (F.col(OP) == TRUNCATE)
            )
        if newest.found is None:
            made = made.check("the record has a key, or the run knows that none has", self._has_key())
        op = F.col(OP).alias(OP, metadata={TRUNCATES_METADATA: True} if self.truncates else {})
        return made.select(*_with_key(columns.names, newest.found), op, TS, PARTITION, _offset(newest.found))

    def described(self, context: RunContext) -> "TableShape":
        """What the topic shows of the table now. Raises JobError as `load`."""
        newest = self._newest(context)
        columns = self._columns(newest)
        key = () if newest.found is None else newest.found.key
        return TableShape(columns, key, newest.found is None or newest.found.has_key, newest.ends)

    def __str__(self) -> str:
        return f"captured({self.topic.name!r})"

    def _columns(self, newest: "_Newest") -> StructType:
        if self.schema is not None:
            try:
                return parse_schema(self.schema)
            except (PySparkException, ValueError) as error:
                raise JobError(f"{self}: {self.schema!r} is no schema: {failures.explain(str(error))}") from None
        if newest.found is None and newest.why is not None:
            raise JobError(f"{self}: no record of the topic shows the columns of the table: {newest.why}")
        if newest.found is None:
            raise JobError(
                f"{self}: the topic has no change of a row yet, by which the columns would be known: start the job "
                "once the connector has captured a row, or name the columns, as in schema='id BIGINT, name STRING'"
            )
        if newest.found.schema is None:
            raise JobError(
                f"{self}: the newest change has no schema: have the connector write them "
                "(value.converter.schemas.enable=true), or name the columns, as in schema='id BIGINT, name STRING'"
            )
        try:
            return columns_of(newest.found.schema)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JobError(f"{self}: the schema of the newest change cannot be used: {error}") from None

    def _newest(self, context: RunContext) -> "_Newest":
        connection = {
            name: value
            for name, value in self.topic.reading(context, {}).items()
            if name.lower().startswith("kafka.") and name.lower() != GROUP
        }
        reading = {"subscribe": context.renamed(self.topic.name), "failOnDataLoss": "false"}
        try:
            return _look(
                ReadOptions.parse({**connection, **reading}, streaming=False),
                self.registry,
                chooses=self.schema is None,
            )
        except (SourceError, RegistryError, ValueError) as error:
            raise JobError(f"{self}: {error}") from error

    def _has_key(self) -> Column:
        """True; fails the query for a record without a key, if none was there when the run began: rows of one key are
        in no order then, which what follows the table has to know."""
        text = (
            f"{self}: the topic was empty when the run began, and its records have no key, as those of a table "
            "without a primary key: start the run again, which takes that into account"
        )
        is_keyless = ~F.col(HAS_KEY) & (F.col(OP) != TRUNCATE)
        return F.when(is_keyless, F.raise_error(F.lit(text)).cast("boolean")).otherwise(F.lit(True))

    def _has_columns(self, ends: FlatOffsets) -> Column:
        """True; fails the query for a change that came after the run began with a column that the run does not have."""
        known = F.lit(0).cast("bigint")
        for partition, end in ends.items():
            known = F.when(F.col(PARTITION) == partition.number, F.lit(end)).otherwise(known)
        is_new = F.col(UNKNOWN).isNotNull() & (F.col(OFFSET) >= known)
        text = F.concat(
            F.lit(f"{self}: the table has a column '"),
            F.col(UNKNOWN),
            F.lit("' since the run began: start the run again, so that its values are not lost"),
        )
        return F.when(is_new, F.raise_error(text).cast("boolean")).otherwise(F.lit(True))


def captured(
    name: str,
    *,
    schema: str | None = None,
    truncates: bool = False,
    registry: Registry | None = None,
    starting: str = "earliest",
    idle_after: str | None = None,
    **options: object,
) -> Captured:
    """The changes of a table, as a connector of Debezium's kind captures them into a topic: `shop.public.customers`.

    Columns and types are those of the newest change when the run starts; `schema` names them in SQL's words instead
    (`id BIGINT NOT NULL, name STRING`), and any others are left out. `starting`, `idle_after` and other options are
    as in `topic`. The `registry` knows the schemas of records in Avro. The rows have four more columns: `_op`
    (c, u, d, r), `_ts`, `_partition` and `_offset`. Records that are no changes of a row become dead letters; with
    `truncates`, a truncate is a row of nulls whose `_op` is `t`. Raises JobError.
    """
    if "," in name:
        raise JobError(f"captured({name!r}): a table is captured in one topic; give each its own captured(...)")
    read = topic(name, starting=starting, idle_after=idle_after)
    return Captured(replace(read, options=as_text(options)), schema, truncates, registry)


class TableShape(NamedTuple):
    """The columns of a captured table; the names in its records' keys, none if there are no records yet; whether they
    have a key; and where its topic ended."""

    columns: StructType
    key: tuple[str, ...]
    has_key: bool
    ends: FlatOffsets


class _Newest(NamedTuple):
    """What the newest change describes, if there is one, and where the partitions ended when it was looked for. `why`:
    what kept a record from being read."""

    found: Described | None
    ends: FlatOffsets
    why: str | None = None


def _with_key(names: list[str], found: Described | None) -> Iterator[Column]:
    """The columns by name, those of the key marked with their places in it, if the rows have them all."""
    key = found.key if found is not None and set(found.key) <= set(names) else ()
    for name, column in zip(names, quoted(names), strict=True):
        yield F.col(column).alias(name, metadata={KEY_METADATA: key.index(name)} if name in key else {})


def _offset(found: Described | None) -> Column:
    has_no_key = found is not None and not found.has_key
    return F.col(OFFSET).alias(OFFSET, metadata={KEYLESS_METADATA: True} if has_no_key else {})


def _look(options: ReadOptions, registry: Registry | None, *, chooses: bool) -> _Newest:
    """The newest change of a row: of the last one in each partition, the one with the latest time."""
    metadata = TopicMetadata(options.client)
    layout = metadata.layout(options.selection)
    begins, ends = metadata.earliest(layout.partitions), metadata.latest(layout.partitions)
    newest: tuple[Any, Described] | None = None
    refused: list[str] = []
    for partition, end in ends.items():
        stop, width, last = end, _FIRST_LOOK, None
        while last is None and stop > begins[partition]:
            start = max(begins[partition], stop - width)
            wanted = OffsetRange(partition, start, stop, layout.ids.get(partition.topic))
            last = _last_change(wanted, options, registry, refused)
            stop, width = start, width * 10
        if last is not None and (newest is None or _is_newer(last, newest, chooses=chooses)):
            newest = last
    return _Newest(None if newest is None else newest[1], ends, next(iter(refused), None))


def _is_newer(one: tuple[Any, Described], other: tuple[Any, Described], *, chooses: bool) -> bool:
    """By the time of the record, and among those of one millisecond by the place in the database's log, or else by the
    columns: a column too many is null, one too few would lose its values.

    Raises ValueError if each has a column that the other one lacks, and that `chooses` the columns of the run.
    """
    (at, mine), (other_at, others) = one, other
    if at != other_at:
        return bool(at > other_at)
    if mine.place and others.place and mine.place != others.place:
        return bool(mine.place > others.place)
    if chooses and mine.columns - others.columns and others.columns - mine.columns:
        raise ValueError(
            "the newest changes of two partitions have the same time and different columns ("
            f"{', '.join(sorted(mine.columns ^ others.columns))}), so that it is not known which the table has: change "
            "a row of the table, or name the columns, as in schema='id BIGINT, name STRING'"
        )
    return mine.columns > others.columns


def _last_change(
    wanted: OffsetRange, options: ReadOptions, registry: Registry | None, refused: list[str]
) -> tuple[Any, Described] | None:
    """The time of the last change of a row in a range, and what it describes. Why records cannot be read is added to
    `refused`. Raises RegistryError."""
    arrow_schema: Any = to_arrow_schema(read_schema(False), timezone="UTC")
    last: tuple[Any, Described] | None = None
    for batch in read_range(wanted, arrow_schema, options):
        for row in range(batch.num_rows - 1, -1, -1):
            try:
                described = describe(batch["key"][row].as_py(), batch["value"][row].as_py(), registry)
            except Undecodable as problem:
                refused.append(str(problem))
                continue
            if described is not None:
                last = batch["timestamp"][row].as_py(), described
                break
    return last
