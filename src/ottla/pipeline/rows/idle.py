"""The time of an input that brings nothing: rows that only move its watermark, from a source of their own.

Spark's watermark of a flow is the earliest of its inputs', and that of an input comes from its rows alone. So an input
that is declared `idle_after` an interval gets a second source beside it, whose rows have nothing but a time:

    topic weather ──▶ the job's functions ──▶ rows ──┐
                                                     ├──▶ withWatermark ──▶ those of the topic
    ottla-idle    ──▶ a time now and then ───────────┘

A time is a promise: no row before it will come any more. It may be made when the query has read all that was in the
topic at a moment, and rows reach the topic within the interval after their time; then it is that moment less the
interval. See `times` for the source.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ottla.pipeline.rows.times import IS_TIME, SCHEMA, TimesReader, streams_of, times_of
from ottla.spark.errors import SourceError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets
from ottla.spark.options import CHECKPOINTS, IDLE_AFTER_MS, ReadOptions
from ottla.spark.stream_offset import StreamJson

FORMAT: Final = "ottla-idle"
_LOOKS: Final = 10
"""So often in the interval the topic is looked at."""
_LONGEST_PAUSE_S: Final = 60.0


def with_times(rows: DataFrame, column: str) -> DataFrame | None:
    """The rows and those that have only a time, in this column, for what is to be made of both
    (`times.without_times` afterwards); None if an input of the rows may hold back its watermark.

    Raises ValueError for a column that is none of theirs.
    """
    streams = streams_of(rows) or []
    if not streams or any(IDLE_AFTER_MS.lower() not in options for options in streams):
        return None
    if column not in rows.columns:
        raise ValueError(f"the watermark of an input with idle_after= needs a column of the rows, not {column!r}")
    rows.sparkSession.dataSource.register(IdleSource)
    united = rows.withColumn(IS_TIME, F.lit(False))
    for number, options in enumerate(streams):
        if options not in streams[:number]:
            united = united.union(times_of(rows, column, FORMAT, options))
    return united


class IdleSource(DataSource):
    """`spark.readStream.format("ottla-idle")`, with the options of the topic's own source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "IdleReader":
        return IdleReader(dict(self.options))


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


class IdleReader(TimesReader):
    """Gives a time when the topic has brought nothing for the interval; none to a query that ends by itself."""

    # ruff: noqa: N802 - the names of the methods are Spark's

    def __init__(self, options: dict[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        super().__init__(Path(given[CHECKPOINTS.lower()]))
        self._after_ms = int(given[IDLE_AFTER_MS.lower()])
        # An open transaction may hold older rows: the end is that of all records, not of the committed ones.
        self._options = ReadOptions.parse({**given, "kafka.isolation.level": "read_uncommitted"}, streaming=True)
        self._idleness = Idleness(self._after_ms / 1000)
        self._pause_s = min(self._after_ms / 1000 / _LOOKS, _LONGEST_PAUSE_S)
        self._next_look_at = 0.0
        self._ends_by_itself = False

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends_by_itself = True

    def latestOffset(self, start: StreamJson, limit: ReadLimit) -> StreamJson:
        if self._ends_by_itself or time.monotonic() < self._next_look_at:
            return start
        self._next_look_at = time.monotonic() + self._pause_s
        return self.later(start)

    def newest_ms(self, query: str) -> int | None:
        now_ms = time.time_ns() // 1_000_000  # before the brokers are asked: what comes from now on has a later time
        return now_ms - self._after_ms if self._is_idle(query) else None

    def _is_idle(self, query: str) -> bool:
        read = self.read_by(query)
        if read is None:
            return False
        metadata = TopicMetadata(self._options.client)
        try:
            layout = metadata.layout(self._options.selection, {partition.topic for partition in read})
            ends = metadata.latest(layout.partitions)
        except SourceError:  # the topic's own source waits for the brokers, or fails
            return False
        return self._idleness.is_over(read, ends, time.monotonic())
