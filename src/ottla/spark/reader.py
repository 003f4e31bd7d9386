"""Readers as Spark's data source API asks for them: one that ends, and one that goes on."""

# ruff: noqa: N802 - the names of the methods are Spark's

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.spark.client_settings import ClientSettings
from ottla.spark.delegation import for_tasks, without_login
from ottla.spark.errors import DataLossError
from ottla.spark.fetch import patient_metadata, read_range
from ottla.spark.group_progress import GroupProgress
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets, OffsetRange, Partition, admit, split
from ottla.spark.options import ReadOptions
from ottla.spark.pushdown import Narrowing, narrow
from ottla.spark.stream_offset import Cut, StreamJson, StreamOffset

log = logging.getLogger(__name__)

_MOST_NAMED: Final = 10
_GROWTH: Final = 4
"""By so much a micro-batch may be larger than the one before it, with `firstOffsetsPerTrigger`."""
_STEPS_OF_GROWTH: Final = 20


class RangePartition(InputPartition):
    """A range of offsets as one task of Spark; `login`: the settings with which it logs in, None for the reader's."""

    def __init__(self, wanted: OffsetRange, login: ClientSettings | None = None) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.login = login


class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`, both settled when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        metadata = TopicMetadata(options.client)
        layout = metadata.layout(options.selection)
        first = metadata.resolve(layout.partitions, options.starting, "startingOffsets")
        last = metadata.resolve(layout.partitions, options.ending, "endingOffsets")
        start, end = self._narrowing.clip(first, last)
        if self._narrowing.since_ms is not None:
            for partition, offset in metadata.at_time(start, self._narrowing.since_ms).items():
                start[partition] = end[partition] if offset < 0 else max(start[partition], offset)
        cut = Cut(options.min_partitions, options.max_records_per_partition)
        return _tasks(start, StreamOffset(end, layout.ids, cut), options) or _nothing(first)

    def __getstate__(self) -> dict[str, Any]:
        """For tasks."""
        return {**self.__dict__, "_options": _for_tasks(self._options)}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class NarrowingReader(BatchReader):
    """A batch reader that reads no more than a query's filters ask for, if `spark.sql.python.filterPushdown.enabled`.

    Only on request (`pushDownFilters`): Spark 4.3 keeps what the last filters left of a loaded DataFrame for all other
    uses of the same DataFrame, which then silently see too little (`PythonDataSourceV2.readInfo`).
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        unsaid: list[Filter] = []
        self._narrowing = narrow(filters, unsaid)
        return unsaid


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; the offsets between them are kept by Spark's checkpoint.

    Partitions added to a topic while the query runs are read from their beginning, and so are topics that begin to
    match a pattern: one micro-batch notes down where that is, the next reads. With `kafka.group.id`, the group's
    offsets follow the checkpoint.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cut = Cut(options.min_partitions, options.max_records_per_partition)
        self._reads_until_now = False
        self._target: StreamOffset | None = None
        self._seen: StreamOffset | None = None
        self._last_batch_at = -math.inf
        self._batches = 0
        self._initial: StreamJson | None = None
        self._progress = None if options.group_id is None else GroupProgress(options.client)

    def initialOffset(self) -> StreamJson:
        """The same each time: Spark asks again when it plans the first micro-batch, and `latest` may have moved on past
        that one's end."""
        if self._initial is None:
            self._initial = self._settled_start()
        return self._initial

    def _settled_start(self) -> StreamJson:
        options = self._options
        metadata = TopicMetadata(options.client)
        layout = metadata.layout(options.selection)
        offsets = metadata.resolve(layout.partitions, options.starting, "startingOffsets")
        return StreamOffset(offsets, layout.ids, self._cut).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._reads_until_now, self._target = True, None

    def latestOffset(self, start: StreamJson, limit: ReadLimit) -> StreamJson:
        done = StreamOffset.parse(start)
        if self._progress is not None:
            # Spark asks for more when what it was given last is done, and noted down in its checkpoint.
            self._progress.report(done.offsets)
        latest = self._target or self._latest(done)
        if self._reads_until_now:
            self._target = latest
        known = self._known(done, latest)
        added = patient_metadata(self._options).earliest(latest.offsets.keys() - known.keys())
        self._check_added(added, done, latest)
        there = {partition: latest.offsets[partition] for partition in known}
        if not added and self._waits_for_more(known, there):
            return start
        max_rows = self._most_rows(limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        # The start of what is new has to stand in the checkpoint before it is read: it may be another the next time.
        end = admit(known, there, max_rows) | added
        if end == done.offsets and not done.replaced(latest.ids):
            return start  # with any other setting, too, there is nothing to read
        self._last_batch_at = time.monotonic()
        self._batches += 1
        return StreamOffset(end, latest.ids, self._cut).as_json()

    def _most_rows(self, most: int | None) -> int | None:
        """The limit of the next micro-batch: those after a start are small, so that first results come soon."""
        first = self._options.first_offsets_per_trigger
        if first is None:
            return most
        grown: int = first * _GROWTH ** min(self._batches, _STEPS_OF_GROWTH)
        return grown if most is None else min(grown, most)

    def _waits_for_more(self, begin: FlatOffsets, latest: FlatOffsets) -> bool:
        """Whether there is less than `minOffsetsPerTrigger`, and `maxTriggerDelay` is not over."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        if self._last_batch_at == -math.inf:
            self._last_batch_at = time.monotonic()
        there = sum(max(0, end - begin[partition]) for partition, end in latest.items())
        return there < least and time.monotonic() < self._last_batch_at + self._options.max_trigger_delay_s

    def reportLatestOffset(self) -> StreamJson | None:
        """As of the last `latestOffset`, a moment ago."""
        return None if self._seen is None else self._seen.as_json()

    def partitions(self, start: StreamJson, end: StreamJson) -> list[InputPartition]:
        until = StreamOffset.parse(end)
        if until.cut is None:
            until = replace(until, cut=self._cut)
        done = StreamOffset.parse(start)
        known = self._known(done, until)
        # none of what is new is to be read yet, but in a checkpoint of Spark's own source
        starts = known | patient_metadata(self._options).earliest(until.offsets.keys() - known.keys())
        return _tasks(starts, until, self._options)

    def __getstate__(self) -> dict[str, Any]:
        """For tasks, which commit no progress."""
        return {**self.__dict__, "_options": _for_tasks(self._options), "_progress": None}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: StreamJson) -> None:
        """Do nothing: Spark calls this only when it begins the batch after the next; see `latestOffset`."""

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _latest(self, done: StreamOffset) -> StreamOffset:
        metadata = patient_metadata(self._options)
        layout = metadata.layout(self._options.selection, {partition.topic for partition in done.offsets})
        self._seen = StreamOffset(metadata.latest(layout.partitions), layout.ids, self._cut)
        return self._seen

    def _known(self, done: StreamOffset, until: StreamOffset) -> FlatOffsets:
        """Where to go on with the partitions whose log is the one that was read: where `done` ends, or where the log
        does if that is before.

        Raises DataLossError (or warns, without `failOnDataLoss`) if topics were deleted, or a log has lost its end.
        """
        lost, shorter = _lost(done, until), _shorter(done, until)
        self._lose(lost | shorter)
        kept = {partition: offset for partition, offset in done.offsets.items() if partition not in lost}
        return kept | {partition: until.offsets[partition] for partition in shorter}

    def _check_added(self, added: FlatOffsets, done: StreamOffset, latest: StreamOffset) -> None:
        """Raises DataLossError (or warns) if a new partition of a topic that is being read has lost its beginning."""
        topics = {partition.topic for partition in done.offsets} - done.replaced(latest.ids)
        self._lose(
            {
                partition: f"was added and starts at offset {offset} instead of 0"
                for partition, offset in added.items()
                if offset > 0 and partition.topic in topics and partition not in done.offsets
            }
        )

    def _lose(self, lost: dict[Partition, str]) -> None:
        if not lost:
            return
        what = "; ".join(f"{partition} {why}" for partition, why in sorted(lost.items())[:_MOST_NAMED])
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Its unread records are lost. Start with a new checkpoint, or set the option "
                "failOnDataLoss to false to continue with the remaining records."
            )
        log.warning("%s; continuing with the remaining records, as failOnDataLoss is false", what)


def _lost(done: StreamOffset, until: StreamOffset) -> dict[Partition, str]:
    """What happened to partitions whose log is not, or may not be, the one that was read."""
    replaced = done.replaced(until.ids)
    lost = {}
    for partition, offset in done.offsets.items():
        end = until.offsets.get(partition)
        if partition.topic in replaced:
            lost[partition] = (
                f"is of a topic that was deleted and made again, and the query has read up to offset {offset} of the "
                "old one"
            )
        elif end is None:
            lost[partition] = f"is gone, and the query has read up to offset {offset}"
        elif end < offset and not _is_same(partition.topic, done, until):
            lost[partition] = (
                f"ends at offset {end}, but the query has read up to offset {offset}: its topic was deleted and made "
                "again, or lost its end"
            )
    return lost


def _shorter(done: StreamOffset, until: StreamOffset) -> dict[Partition, str]:
    """What happened to partitions of the same topic as before that end before what was read."""
    return {
        partition: (
            f"ends at offset {until.offsets[partition]}, but the query has read up to offset {offset}: it lost its "
            "end, offsets beyond it were given to start from, or a transaction is open there and the query now reads "
            "committed records only"
        )
        for partition, offset in done.offsets.items()
        if _is_same(partition.topic, done, until) and until.offsets.get(partition, offset) < offset
    }


def _is_same(topic: str, done: StreamOffset, until: StreamOffset) -> bool:
    return topic in done.ids and done.ids[topic] == until.ids.get(topic)


def _tasks(start: FlatOffsets, until: StreamOffset, options: ReadOptions) -> list[InputPartition]:
    assert until.cut is not None
    ranges = [
        OffsetRange(partition, start[partition], end, until.ids.get(partition.topic))
        for partition, end in sorted(until.offsets.items())
        if start[partition] < end
    ]
    pieces = split(ranges, until.cut.min_partitions, until.cut.max_records_per_partition)
    login = for_tasks(options.client) if options.delegates and pieces else None
    return [RangePartition(each, login) for each in pieces]


def _for_tasks(options: ReadOptions) -> ReadOptions:
    """The options that Spark sends to executors: without the login of the driver's user, if there are tokens."""
    return replace(options, client=without_login(options.client)) if options.delegates else options


def _nothing(start: FlatOffsets) -> list[InputPartition]:
    """A task without records: Spark replaces a batch read without tasks by a placeholder without a description."""
    partition, offset = min(start.items(), default=(Partition("", 0), 0))
    return [RangePartition(OffsetRange(partition, offset, offset))]


def _read(options: ReadOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RangePartition)
    if partition.wanted.start >= partition.wanted.end:
        return iter(())
    arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
    if partition.login is not None:
        options = replace(options, client=partition.login)
    return read_range(partition.wanted, arrow_schema, options)
