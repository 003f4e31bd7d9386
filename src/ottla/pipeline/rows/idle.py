"""The time of an input that brings nothing: rows that only move its watermark, from a source of their own.

Spark's watermark of a flow is the earliest of its inputs', and that of an input comes from its rows alone. So an input
that is declared `idle_after` an interval gets a second source beside it, whose rows have nothing but a time:

    topic weather ──▶ the job's functions ──▶ rows ──┐
                                                     ├──▶ withWatermark ──▶ those of the topic
    ottla-idle    ──▶ a time now and then ───────────┘

A time is a promise: no row before it will come any more. It may be made when the query has read all that was in the
topic at a moment, and rows reach the topic within the interval after their time; then it is that moment less the
interval. How far the query has read is in its checkpoint: the micro-batch before has ended when Spark asks a source
for the next one. The time is part of the source's offset, so a micro-batch that is repeated has the same watermark.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType, TimestampType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import BESIDE, TIME_MS
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.spark.errors import SourceError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets
from ottla.spark.options import CHECKPOINTS, IDLE_AFTER_MS, ReadOptions
from ottla.spark.stream_offset import StreamJson, StreamOffset

FORMAT: Final = "ottla-idle"
_QUERY: Final = "query"
"""A name for the query, made at its first start, by which its checkpoint is found."""
_AT: Final = "at"
_IS_TIME: Final = "__ottla_is_time"
_COUNTED: Final = "ottla_times_"
_LOOKS: Final = 10
"""So often in the interval the topic is looked at."""
_LONGEST_PAUSE_S: Final = 60.0


def with_times(rows: DataFrame, column: str) -> DataFrame | None:
    """The rows and those that have only a time, in this column, for what is to be made of both (`without_times`
    afterwards); None if an input of the rows may hold back its watermark.

    Raises ValueError for a column that is none of theirs.
    """
    options = _options_of_inputs(rows)
    if not options:
        return None
    if column not in rows.columns:
        raise ValueError(f"the watermark of an input with idle_after= needs a column of the rows, not {column!r}")
    rows.sparkSession.dataSource.register(IdleSource)
    united = rows.withColumn(_IS_TIME, F.lit(False))
    for given in options:
        times = rows.sparkSession.readStream.format(FORMAT).options(**given).load()
        values = [
            (F.col(_AT) if each.name == column else F.lit(None)).cast(each.dataType).alias(each.name)
            for each in rows.schema.fields
        ]
        united = united.union(times.select(*values, F.lit(True)))
    return united


def without_times(rows: DataFrame) -> DataFrame:
    """The rows without those that have only a time. Spark moves conditions to before a watermark, which would not see
    the times then, but none past the place where rows are counted."""
    counted = rows.observe(f"{_COUNTED}{uuid.uuid4().hex}", F.count_if(F.col(_IS_TIME)).alias("times"))
    return counted.where(~F.col(_IS_TIME)).drop(_IS_TIME)


def _options_of_inputs(rows: DataFrame) -> list[dict[str, str]]:
    """Those of the streams that the rows are made of; none if one of them is not declared `idle_after`."""
    frame: Any = rows
    if not rows.isStreaming or not hasattr(frame, "_jdf"):
        return []
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.isStreaming():
            continue
        if leaf.getClass().getSimpleName() != "StreamingRelationV2":
            return []
        options = {str(name).lower(): str(value) for name, value in dict(leaf.extraOptions()).items()}
        if IDLE_AFTER_MS.lower() not in options:
            return []
        if options not in found:
            found.append(options)
    return found


class IdleSource(DataSource):
    """`spark.readStream.format("ottla-idle")`, with the options of the topic's own source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return StructType([StructField(_AT, TimestampType())])

    def streamReader(self, schema: StructType) -> "IdleReader":
        return IdleReader(dict(self.options))


class TimePartition(InputPartition):
    """A row with a time, in milliseconds since 1970."""

    def __init__(self, time_ms: int) -> None:
        super().__init__(time_ms)
        self.time_ms = time_ms


@dataclass(slots=True)
class Idleness:
    """How long a topic has brought nothing to a query that has read all of it. PURE. Times are in seconds."""

    after_s: float
    _ends: FlatOffsets | None = None
    _since: float = 0.0

    def is_over(self, read: Mapping[Any, set[int]], ends: FlatOffsets, now_s: float) -> bool:
        """Take in that the topic ended there at a time of a clock that only goes on, and that the query had read up to
        these offsets before; whether the interval is over."""
        if any(read.get(partition) != {end} for partition, end in ends.items()):
            self._ends = None
        elif self._ends != ends:
            self._ends, self._since = ends, now_s
        return self._ends is not None and now_s - self._since >= self.after_s


class IdleReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives a time when the topic has brought nothing for the interval; none to a query that ends by itself."""

    # ruff: noqa: N802 - the names of the methods are Spark's

    def __init__(self, options: dict[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._after_ms = int(given[IDLE_AFTER_MS.lower()])
        self._checkpoints = Path(given[CHECKPOINTS.lower()])
        # An open transaction may hold older rows: the end is that of all records, not of the committed ones.
        self._options = ReadOptions.parse({**given, "kafka.isolation.level": "read_uncommitted"}, streaming=True)
        self._idleness = Idleness(self._after_ms / 1000)
        self._pause_s = min(self._after_ms / 1000 / _LOOKS, _LONGEST_PAUSE_S)
        self._next_look_at = 0.0
        self._ends_by_itself = False
        self._own: CheckpointLog | None = None

    def initialOffset(self) -> StreamJson:
        return {BESIDE: {_QUERY: uuid.uuid4().hex, TIME_MS: 0}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends_by_itself = True

    def latestOffset(self, start: StreamJson, limit: ReadLimit) -> StreamJson:
        if self._ends_by_itself or time.monotonic() < self._next_look_at:
            return start
        self._next_look_at = time.monotonic() + self._pause_s
        before = start[BESIDE]
        now_ms = time.time_ns() // 1_000_000  # before the brokers are asked: what comes from now on has a later time
        if not self._is_idle(before[_QUERY]) or now_ms - self._after_ms <= before[TIME_MS]:
            return start
        return {BESIDE: {**before, TIME_MS: now_ms - self._after_ms}}

    def partitions(self, start: StreamJson, end: StreamJson) -> list[InputPartition]:
        time_ms = end[BESIDE][TIME_MS]
        return [TimePartition(time_ms)] if time_ms > start[BESIDE][TIME_MS] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TimePartition)
        times = pa.array([partition.time_ms * 1000], pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([times], names=[_AT])

    def commit(self, end: StreamJson) -> None:
        """Do nothing: there is no more than the offset."""

    def stop(self) -> None:
        """Nothing is held."""

    def _is_idle(self, query: str) -> bool:
        read = self._read_by(query)
        if read is None:
            return False
        metadata = TopicMetadata(self._options.client)
        try:
            layout = metadata.layout(self._options.selection, {partition.topic for partition in read})
            ends = metadata.latest(layout.partitions)
        except SourceError:  # the topic's own source waits for the brokers, or fails
            return False
        return self._idleness.is_over(read, ends, time.monotonic())

    def _read_by(self, query: str) -> dict[Any, set[int]] | None:
        """Where all sources of the query have ended that read a partition, by the last micro-batch in its checkpoint;
        None before there is one."""
        for log in [self._own] if self._own is not None else map(CheckpointLog, self._locations()):
            try:
                ends = log.batch(log.last_begun()).ends
            except PipelineError:
                continue
            if any(isinstance(end, dict) and end.get(BESIDE, {}).get(_QUERY) == query for end in ends):
                self._own = log
                return _positions(ends)
        self._own = None
        return None

    def _locations(self) -> list[Path]:
        """The checkpoints of the run's queries. Which of them is this one's shows the name in its offsets."""
        return [offsets.parent for offsets in self._checkpoints.glob("*/*/offsets")]


def _positions(ends: tuple[Any, ...]) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {}
    for end in ends:
        if isinstance(end, dict) and all(isinstance(each, dict) for each in end.values()):
            for partition, offset in StreamOffset.parse(end).offsets.items():
                found.setdefault(partition, set()).add(offset)
    return found
