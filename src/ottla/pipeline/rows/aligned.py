"""The watermark of flows that follow each other: a flow that reads what another writes waits for that one's.

Rows of one micro-batch of the first flow reach its topic partition by partition, task by task. The second flow may read
some of them before others that are older, and its watermark would pass those. So an input that is declared `aligned`
gets a second source beside it, with a watermark of its own, and Spark takes the earlier one:

    topic enriched ──▶ rows ──▶ withWatermark(delay) ──┐
                                                       ├──▶ those of the topic, behind the earlier watermark
    ottla-aligned  ──▶ times ─▶ withWatermark(0) ──────┘

A time is a promise: no row that was in time for the first flow comes before it any more. What the flow writes in
micro-batch n + 1 or later is behind the watermark of micro-batch n, less what it holds back (a row that stands for a
window has a time in that window). So the time is that of n, once the query has read all that the topic had after n was
done. See `times` for the source.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import FLOWS
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.pipeline.rows.times import IS_TIME, SCHEMA, TimesReader, streams_of, times_of, without_times
from ottla.spark.errors import SourceError
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets
from ottla.spark.options import ALIGNED_WITH, CHECKPOINTS, ReadOptions
from ottla.spark.stream_offset import StreamJson

FORMAT: Final = "ottla-aligned"
_MOST_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Upstream:
    """A flow that writes a topic which another reads. `hold_ms` is by how much the time of a row that it writes may be
    before its watermark."""

    flow: str
    checkpoint: str
    hold_ms: int


def options_of(upstream: Sequence[Upstream]) -> dict[str, str]:
    """The option of the topic's source by which its watermark is aligned with those flows'."""
    return {ALIGNED_WITH: json.dumps([asdict(each) for each in upstream])}


def aligned(rows: DataFrame, marked: DataFrame, column: str) -> DataFrame:
    """`marked` with a watermark not later than those of the flows that write the topics of `rows`: `marked` itself if
    no topic is declared `aligned`. `marked` are the rows with a watermark on the column."""
    name = ALIGNED_WITH.lower()
    streams = [options for options in streams_of(rows) or [] if name in options]
    if not streams:
        return marked
    rows.sparkSession.dataSource.register(AlignedSource)
    united = marked.withColumn(IS_TIME, F.lit(False))
    for number, options in enumerate(streams):
        if options not in streams[:number]:
            times = times_of(rows, column, FORMAT, options)
            united = united.union(times.withWatermark(column, "0 seconds"))
    return without_times(united)


def is_aligned(rows: DataFrame) -> bool:
    """Whether the plan has a source of times for each topic that is declared so."""
    streams = streams_of(rows) or []
    wanted = [options[ALIGNED_WITH.lower()] for options in streams if ALIGNED_WITH.lower() in options]
    return all(wanted.count(each) > 1 for each in wanted)  # the topic's own source, and that of the times


class AlignedSource(DataSource):
    """`spark.readStream.format("ottla-aligned")`, with the options of the topic's own source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "AlignedReader":
        return AlignedReader(dict(self.options))


class _Promise(NamedTuple):
    """No row before `time_ms` comes any more to a query that has read up to `ends`."""

    time_ms: int
    ends: FlatOffsets


@dataclass(slots=True)
class Promises:
    """The promises that a query has not come up to yet, the oldest first. PURE."""

    _waiting: deque[_Promise] = field(default_factory=deque)

    def add(self, time_ms: int, ends: FlatOffsets) -> None:
        """The topic ended there when the flow upstream was done with what is before this time."""
        self._waiting.append(_Promise(time_ms, ends))
        if len(self._waiting) > _MOST_WAITING:  # of a query that is far behind, fewer do
            kept = [each for number, each in enumerate(self._waiting) if number % 2]
            self._waiting = deque(kept)

    def kept(self, read: Mapping[Any, set[int]]) -> int | None:
        """The newest time of those whose ends were read, by all sources of the query that read the partition; they
        wait no longer. None if there is none."""
        found = None
        while self._waiting and _has_read(read, self._waiting[0].ends):
            found = self._waiting.popleft().time_ms
        return found


def _has_read(read: Mapping[Any, set[int]], ends: FlatOffsets) -> bool:
    return all(min(read.get(partition, {0})) >= end for partition, end in ends.items())


class AlignedReader(TimesReader):
    """Gives the times that the flows upstream have passed, once the query has read what they wrote before."""

    # ruff: noqa: N802 - the names of the methods are Spark's

    def __init__(self, options: dict[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        super().__init__(Path(given[CHECKPOINTS.lower()]))
        self._upstream = [Upstream(**each) for each in json.loads(given[ALIGNED_WITH.lower()])]
        # Committed records may stand behind an open transaction, so that the end is that of all records.
        self._options = ReadOptions.parse({**given, "kafka.isolation.level": "read_uncommitted"}, streaming=True)
        self._promises = Promises()
        self._seen: list[int] = []
        self._ends_by_itself = False

    def beside(self) -> dict[str, Any]:
        return {FLOWS: [each.flow for each in self._upstream]}

    def prepareForTriggerAvailableNow(self) -> None:
        """The query will read what there is now: later promises are about later records."""
        self._take_promise()
        self._ends_by_itself = True

    def latestOffset(self, start: StreamJson, limit: ReadLimit) -> StreamJson:
        if not self._ends_by_itself:
            self._take_promise()
        return self.later(start)

    def newest_ms(self, query: str) -> int | None:
        read = self.read_by(query)
        return None if read is None else self._promises.kept(read)

    def _take_promise(self) -> None:
        """Look how far the flows upstream are, and only then where the topic ends."""
        done = [_watermark_of(each) for each in self._upstream]
        known = [each for each in done if each is not None]
        numbers = [number for number, _ in known]
        if len(known) < len(done) or numbers == self._seen:
            return
        time_ms = min(
            watermark_ms - each.hold_ms for each, (_, watermark_ms) in zip(self._upstream, known, strict=True)
        )
        if time_ms <= 0:  # there is no watermark yet
            return
        metadata = TopicMetadata(self._options.client)
        try:
            layout = metadata.layout(self._options.selection, set())
            ends = metadata.latest(layout.partitions)
        except SourceError:  # the topic's own source waits for the brokers, or fails
            return
        self._seen = numbers
        self._promises.add(time_ms, ends)


def _watermark_of(upstream: Upstream) -> tuple[int, int] | None:
    """The number of the last micro-batch that the flow has done, and its watermark; None before there is one."""
    log = CheckpointLog(Path(upstream.checkpoint))
    try:
        number = log.last_done()
        return None if number < 0 else (number, log.batch(number).watermark_ms)
    except PipelineError:  # a new one is written at this moment
        return None
