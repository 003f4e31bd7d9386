"""Late rows: rows that Spark drops by a watermark, written to a topic instead, or merged as corrections.

Spark has no side output, and reports only the number of dropped rows. But they follow from its
checkpoint: in micro-batch N it drops rows that closed at or before the watermark of N-1 (whose results
may already have been written), and `offsets/N` and `offsets/N-1` give the records of N. So a follower reads the
records of the micro-batches with dropped rows again, builds the flow's function over them as a batch,
and writes the rows of its watermark that had closed.

    query      ──▶ offsets/N ──▶ commits/N ──▶ progress: 3 rows dropped
    follower                                      └──▶ reads N again ──▶ writes 3 rows, once ──▶ notes down N

`LateRows` writes them to a topic, `correcting.CorrectedRows` merges them into the flow's output.

The rows and a mark of the micro-batch go into one transaction, and the note is written after it, so a follower that is
killed in between finds the mark and writes nothing. A micro-batch whose progress was lost (the process died) is
read again in any case.

What Spark counts (`numRowsDroppedByWatermark`) are rows for joins, deduplication and state, but groups of rows of one
micro-batch for aggregations, which drop them after their first half. Rows dropped by a second stateful operator behind
the first are not records of any topic; they are not found here.

Source: IncrementalExecution, WatermarkPropagator and statefulOperators of Spark 4 (late events are judged by
`prevOffsetSeqMetadata`, SPARK-40925), held by tests against Spark's own count.
"""

import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # comes without types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import failures
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.inputs import Input, Topic
from ottla.pipeline.rows.captured import Captured
from ottla.pipeline.rows.checked import Checked, decoded, labelled, source_of
from ottla.pipeline.rows.checkpoint_log import Batch, CheckpointLog
from ottla.pipeline.rows.history import Versions
from ottla.pipeline.rows.watermark import CLOSES, Watched, watching
from ottla.spark.exactly_once import StreamTask, write_once
from ottla.spark.marks import Write
from ottla.spark.stream_offset import StreamOffset

log = logging.getLogger(__name__)

Load = Callable[[Input], DataFrame | Checked | Versions]
Ranges = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition: the first offset (-2 the earliest there is), and the one after the last."""

_EARLIEST: Final = -2
_NEVER: Final = 0
"""The watermark before there was any: nothing is late."""
_WRITE: Final = Write("late", "late")
"""The same for all processes: there is one write per micro-batch, however often it is tried."""
_OF_STREAMS: Final = frozenset(
    {"maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "kafka.group.id", "minpartitions"}
)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a follower has come: the last micro-batch that it is through with, and all rows it has written."""

    batch: int = -1
    rows: int = 0

    @classmethod
    def read(cls, file: Path) -> "Position | None":
        """None if there is no file. Raises PipelineError."""
        try:
            found = json.loads(file.read_text())
            return cls(int(found["batch"]), int(found["rows"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            raise PipelineError(
                f"{file}, which records how far late rows have been written, is damaged: {error}"
            ) from error

    def write(self, file: Path) -> None:
        """Raises OSError; then the file is as it was."""
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(json.dumps({"batch": self.batch, "rows": self.rows}))
        os.replace(new, file)


class NumberedBatch(Protocol):
    """What distinguishes the late rows of a micro-batch from all others."""

    @property
    def query_id(self) -> str: ...

    @property
    def number(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LateBatch:
    """A micro-batch with late rows. `load` gives its records in place of an input, `watermark_ms` is the time by which
    rows were late, in milliseconds since 1970, `of_query` the id of the flow's query."""

    load: Load
    watermark_ms: int
    of_query: str
    number: int

    @property
    def query_id(self) -> str:
        """Under which outputs keep the number: the flow's own query has its own."""
        return f"late-{self.of_query}"


@dataclass(slots=True)
class Follower(ABC):
    """The follower of one flow.

    `checkpoint` is the flow's, `position` the follower's own file. `rebuild` builds the flow once more with what it is
    given in place of its inputs.
    """

    figure: ClassVar[str]
    """The figure of a flow's progress that has `total`."""
    flow: str
    checkpoint: Path
    position: Path
    context: RunContext
    rebuild: Callable[[Load], DataFrame]
    _dropped: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def total(self) -> int:
        """Late rows written, or rows corrected by them, since the flow began."""
        return (Position.read(self.position) or Position()).rows

    def on_batch(self, progress: Mapping[str, Any]) -> None:
        """Take note of a micro-batch that is done, by Spark's report of it. From any thread; does no work."""
        dropped = sum(operator["numRowsDroppedByWatermark"] for operator in progress.get("stateOperators", ()))
        with self._lock:
            self._dropped[int(progress["batchId"])] = dropped

    def catch_up(self, *, unheard: bool = False) -> int:
        """Write the late rows of the micro-batches that were reported; how many there were. From one thread.

        With `unheard` those too that are done but were not reported: before the flow starts again, and after its end.
        Raises PipelineError; what is not written yet is written by the next call.
        """
        log_of_query = CheckpointLog(self.checkpoint)
        with self._lock:
            heard = dict(self._dropped)
        last = log_of_query.last_done() if unheard else max(heard, default=-1)
        here = Position.read(self.position)
        if here is None:
            here = Position(batch=log_of_query.first_known() or -1)  # a follower that begins later than its flow
        written = 0
        for number in range(here.batch + 1, last + 1):
            rows = 0 if heard.get(number) == 0 else self._write(log_of_query, number)
            written += rows
            here = Position(number, here.rows + rows)
            self._note_down(here, number)
        return written

    def _note_down(self, here: Position, number: int) -> None:
        try:
            here.write(self.position)
        except OSError as error:
            raise PipelineError(f"{self.position} cannot be written: {error}") from error
        with self._lock:
            self._dropped = {batch: rows for batch, rows in self._dropped.items() if batch > number}

    def _write(self, log_of_query: CheckpointLog, number: int) -> int:
        if number == 0:  # before the first micro-batch there was no watermark
            return 0
        if number - 1 < log_of_query.first_known():
            raise PipelineError(
                f"late rows of {self.flow!r} were written up to micro-batch {number - 1}, but the checkpoint knows "
                f"only those from {log_of_query.first_known()} on: to go on without the rows between, delete "
                f"{self.position}"
            )
        before, batch = log_of_query.batch(number - 1), log_of_query.batch(number)
        if before.watermark_ms <= _NEVER:
            return 0
        wanted = ranges(before, batch)
        if not wanted:
            return 0
        late = LateBatch(lambda given: self._load(given, wanted), before.watermark_ms, log_of_query.query_id(), number)
        try:
            return self.write_late(late)
        except (PySparkException, Py4JJavaError) as error:  # the second: what Spark has no class for in Python
            said = failures.explain(str(error))
            raise PipelineError(f"late rows of {self.flow!r}, micro-batch {number}: {said}") from error

    @abstractmethod
    def write_late(self, late: LateBatch) -> int:
        """Write the late rows of a micro-batch once, however often this is called; how many there are."""

    def _load(self, given: Input, wanted: Ranges) -> DataFrame | Checked | Versions:
        """An input as the micro-batch had it: for a topic, only its records."""
        if isinstance(given, Topic):
            return self._records(given, wanted)
        if isinstance(given, Captured):
            return given.decode(self._records(given.topic, wanted), self.context)
        rows = given.load(self.context)
        if isinstance(rows, Checked) or rows.isStreaming:
            raise PipelineError(f"late rows of {self.flow!r} cannot be found: {given.describe()} is no topic")
        return rows

    def _records(self, topic: Topic, wanted: Ranges) -> DataFrame:
        names = map(self.context.renamed, topic.topics)
        return read_ranges(topic, self.context, {name: wanted[name] for name in names if name in wanted})


@dataclass(slots=True, kw_only=True)
class LateRows(Follower):
    """Sets late rows aside, in a topic."""

    figure: ClassVar[str] = "late"
    topic: Topic

    def write_late(self, late: LateBatch) -> int:
        """Write the records of the late rows in one transaction. What comes out of the flow is not used."""
        with watching() as watched:
            self.rebuild(late.load)
        if not watched:
            raise PipelineError(
                f"the flow {self.flow!r} has late=topic(...), but sets no watermark by rows.watermark(...), by "
                "which its late rows would be known"
            )
        rows = self._late_records(watched, late.watermark_ms)
        return write_late_once(rows, self.context, self.context.renamed(self.topic.name), late)

    def _late_records(self, watched: list[Watched], watermark_ms: int) -> DataFrame:
        limit = F.timestamp_millis(F.lit(watermark_ms))
        found: DataFrame | None = None
        for each in watched:
            late = each.closing().where(F.col(CLOSES) <= limit)
            closed = "its window closed at " if each.window else "it closed at "
            reason = F.concat(
                F.lit("late: " + closed), _shown(F.col(CLOSES)), F.lit(", the watermark was at "), _shown(limit)
            )
            source = source_of(each.rows)
            letters = decoded(late, source=source, is_well=F.lit(False), reason=reason).rejected
            records = labelled(letters, job=self.context.job, view=self.flow)
            found = records if found is None else found.unionByName(records)
        assert found is not None
        return found


def ranges(before: Batch, batch: Batch) -> Ranges:
    """Which records a micro-batch read. Raises PipelineError if two sources read a partition differently."""
    found: Ranges = {}
    for position, end in enumerate(batch.ends):
        if not isinstance(end, dict):
            continue
        begin = before.ends[position] if position < len(before.ends) else None
        begins = StreamOffset.parse(begin).offsets if isinstance(begin, dict) else {}
        for partition, until in StreamOffset.parse(end).offsets.items():
            wanted = (begins.get(partition, _EARLIEST), until)
            known = found.setdefault(partition.topic, {}).setdefault(partition.number, wanted)
            if known != wanted:
                raise PipelineError(
                    f"two inputs read {partition} at their own pace, so its late rows cannot be identified"
                )
    return {
        topic: {number: (first, until) for number, (first, until) in partitions.items() if first != until}
        for topic, partitions in found.items()
        if any(first != until for first, until in partitions.values())
    }


def read_ranges(topic: Topic, context: RunContext, wanted: Ranges) -> DataFrame:
    """Those records of a topic, or of several, as a batch, with the columns that it has as a stream."""
    options = {key: value for key, value in topic.reading(context, {}).items() if key.lower() not in _OF_STREAMS}
    reader = context.spark.read.format("ottla").options(**options)
    if not wanted:
        names = ",".join(map(context.renamed, topic.topics))
        return reader.option("subscribe", names).load().where(F.lit(False))
    starts, ends = (
        {name: {str(number): each[at] for number, each in found.items()} for name, found in wanted.items()}
        for at in (0, 1)
    )
    return (
        reader.option("assign", json.dumps({name: sorted(found) for name, found in wanted.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def write_late_once(records: DataFrame, context: RunContext, topic: str, late: NumberedBatch) -> int:
    """Write the records in one transaction, unless this was done before; how many there are."""
    task = StreamTask(late.query_id, late.number, 0, _WRITE)
    client = tuple(sorted((name.removeprefix("kafka."), value) for name, value in context.connection().items()))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        outcome = write_once(client, topic, task, batches)
        yield pa.RecordBatch.from_pydict({"records": [outcome.records]})

    counts = records.coalesce(1).mapInArrow(write, "records long").collect()
    return sum(int(row["records"]) for row in counts)


def _shown(time: Column) -> Column:
    return F.date_format(F.to_utc_timestamp(time, F.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
