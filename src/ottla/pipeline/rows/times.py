"""Rows that have nothing but a time, beside those of topics: they move the watermark of a query, and are left out then.

A source of such rows has no topic. Its offset is the newest time, so that a micro-batch that is repeated has the same
watermark, and a name that the query gets at its first start. By that its own checkpoint is found: Spark does not tell a
Python source where it is. The checkpoint has how far the query has read: the micro-batch before has ended when Spark
asks a source for the next one.
"""

import uuid
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType, TimestampType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import BESIDE, TIME_MS
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.spark.stream_offset import StreamJson, StreamOffset

_QUERY: Final = "query"
AT: Final = "at"
IS_TIME: Final = "__ottla_is_time"
SCHEMA: Final = StructType([StructField(AT, TimestampType())])
_COUNTED: Final = "ottla_times_"


def times_of(rows: DataFrame, column: str, source: str, options: dict[str, str]) -> DataFrame:
    """Rows with the columns of `rows` and `IS_TIME`, from a source of times; `column` has the time, all others are
    null."""
    times = rows.sparkSession.readStream.format(source).options(**options).load()
    values = [
        (F.col(AT) if each.name == column else F.lit(None)).cast(each.dataType).alias(each.name)
        for each in rows.schema.fields
    ]
    return times.select(*values, F.lit(True).alias(IS_TIME))


def without_times(rows: DataFrame) -> DataFrame:
    """The rows without those that have only a time. Spark moves conditions to before a watermark, which would not see
    the times then, but none past the place where rows are counted."""
    counted = rows.observe(f"{_COUNTED}{uuid.uuid4().hex}", F.count_if(F.col(IS_TIME)).alias("times"))
    return counted.where(~F.col(IS_TIME)).drop(IS_TIME)


def streams_of(rows: DataFrame) -> list[dict[str, str]] | None:
    """The options, with names in lower case, of the streams that the rows are made of; none for a stream that is no
    data source in Python. None for rows that are no stream, and where the plan is out of reach (Spark Connect)."""
    frame: Any = rows
    if not rows.isStreaming or not hasattr(frame, "_jdf"):
        return None
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.isStreaming():
            is_known = leaf.getClass().getSimpleName() == "StreamingRelationV2"
            given = dict(leaf.extraOptions()) if is_known else {}
            found.append({str(name).lower(): str(value) for name, value in given.items()})
    return found


class TimePartition(InputPartition):
    """A row with a time, in milliseconds since 1970."""

    def __init__(self, time_ms: int) -> None:
        super().__init__(time_ms)
        self.time_ms = time_ms


class TimesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What readers of times have in common. A subclass finds the newest time."""

    # ruff: noqa: N802 - the names of the methods are Spark's

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self._own: CheckpointLog | None = None

    @abstractmethod
    def newest_ms(self, query: str) -> int | None:
        """The newest time, in milliseconds since 1970, for the query of this name; None for none."""

    @abstractmethod
    def latestOffset(self, start: StreamJson, limit: ReadLimit) -> StreamJson: ...

    def later(self, start: StreamJson) -> StreamJson:
        """The offset with the newest time, if that is later than the one before."""
        before = start[BESIDE]
        newest_ms = self.newest_ms(before[_QUERY])
        if newest_ms is None or newest_ms <= before[TIME_MS]:
            return start
        return {BESIDE: {**before, TIME_MS: newest_ms}}

    def beside(self) -> dict[str, Any]:
        """What else the offset has."""
        return {}

    def initialOffset(self) -> StreamJson:
        return {BESIDE: {_QUERY: uuid.uuid4().hex, TIME_MS: 0, **self.beside()}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def partitions(self, start: StreamJson, end: StreamJson) -> list[InputPartition]:
        time_ms = end[BESIDE][TIME_MS]
        return [TimePartition(time_ms)] if time_ms > start[BESIDE][TIME_MS] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TimePartition)
        times = pa.array([partition.time_ms * 1000], pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([times], names=[AT])

    def commit(self, end: StreamJson) -> None:
        """Do nothing: the position is the offset alone."""

    def stop(self) -> None:
        """Nothing is held."""

    def read_by(self, query: str) -> dict[Any, set[int]] | None:
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
        found = (self._checkpoints.glob(pattern) for pattern in ("*/offsets", "*/*/offsets"))
        return [offsets.parent for each in found for offsets in each]


def _positions(ends: tuple[Any, ...]) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {}
    for end in ends:
        if isinstance(end, dict) and all(isinstance(each, dict) for each in end.values()):
            for partition, offset in StreamOffset.parse(end).offsets.items():
                found.setdefault(partition, set()).add(offset)
    return found
