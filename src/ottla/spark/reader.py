"""Readers as Spark's data source API asks for them: one that ends, and one that goes on."""

# ruff: noqa: N802 - the names of the methods are Spark's

import math
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.spark.errors import DataLossError
from ottla.spark.fetch import read_range
from ottla.spark.group_progress import GroupProgress
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets, OffsetRange, Partition, admit, as_json, flatten, split
from ottla.spark.options import ReadOptions

StreamOffset = dict[str, dict[str, int]]


class RangePartition(InputPartition):
    """A range of offsets as one task of Spark."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`, both settled when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        metadata = TopicMetadata(options.client)
        start = metadata.resolve(options.selection, options.starting, "startingOffsets")
        end = metadata.resolve(options.selection, options.ending, "endingOffsets")
        return _tasks(start, end, options) or _nothing(start)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; the offsets between them are kept by Spark's checkpoint.

    Partitions added to a topic while the query runs are read from their beginning, and so are topics that begin to
    match a pattern. With `kafka.group.id`, the group's offsets follow the checkpoint.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: FlatOffsets | None = None
        self._last_batch_at = -math.inf
        self._progress = None if options.group_id is None else GroupProgress(options.client)

    def initialOffset(self) -> StreamOffset:
        options = self._options
        metadata = TopicMetadata(options.client)
        return as_json(metadata.resolve(options.selection, options.starting, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        done = flatten(start)
        if self._progress is not None:
            # Spark asks for more when what it was given last is done, and noted down in its checkpoint.
            self._progress.report(done)
        latest = self._latest() if self._target is None else self._target
        begin = self._begin(done, latest)
        self._check_not_behind(begin, latest)
        if self._waits_for_more(begin, latest):
            return start
        self._last_batch_at = time.monotonic()
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return as_json(admit(begin, latest, max_rows))

    def _waits_for_more(self, begin: FlatOffsets, latest: FlatOffsets) -> bool:
        """Whether there is less than `minOffsetsPerTrigger`, and `maxTriggerDelay` is not over."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        if self._last_batch_at == -math.inf:
            self._last_batch_at = time.monotonic()
        there = sum(max(0, end - begin[partition]) for partition, end in latest.items())
        return there < least and time.monotonic() < self._last_batch_at + self._options.max_trigger_delay_s

    def reportLatestOffset(self) -> StreamOffset:
        return as_json(self._latest())

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        until = flatten(end)
        return _tasks(self._begin(flatten(start), until), until, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: StreamOffset) -> None:
        """Nothing to do: Spark says so only when it begins the batch after the next; see `latestOffset`."""

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _latest(self) -> FlatOffsets:
        metadata = TopicMetadata(self._options.client)
        return metadata.latest(metadata.partitions(self._options.selection))

    def _begin(self, start: FlatOffsets, until: FlatOffsets) -> FlatOffsets:
        added = until.keys() - start.keys()
        return start | TopicMetadata(self._options.client).earliest(added) if added else start

    def _check_not_behind(self, start: FlatOffsets, latest: FlatOffsets) -> None:
        """A log that ends before the checkpoint's offset is another log than the one that was read."""
        if not self._options.fail_on_data_loss:
            return
        for partition, offset in start.items():
            end = latest.get(partition)
            if end is None or end < offset:
                found = "is gone" if end is None else f"ends at offset {end}"
                raise DataLossError(
                    f"{partition} {found}, but the query has read up to offset {offset}: the topic was deleted and "
                    "recreated, or lost its end. Start with a new checkpoint, or set the option failOnDataLoss to "
                    "false to go on."
                )


def _tasks(start: FlatOffsets, end: FlatOffsets, options: ReadOptions) -> list[InputPartition]:
    ranges = [
        OffsetRange(partition, start[partition], until)
        for partition, until in sorted(end.items())
        if start[partition] < until
    ]
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(each) for each in pieces]


def _nothing(start: FlatOffsets) -> list[InputPartition]:
    """A task without records: Spark gives a batch read without tasks a placeholder that says nothing of what it is."""
    partition, offset = min(start.items(), default=(Partition("", 0), 0))
    return [RangePartition(OffsetRange(partition, offset, offset))]


def _read(options: ReadOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RangePartition)
    arrow_schema: Any = to_arrow_schema(schema, timezone="UTC")
    return read_range(
        options.client,
        partition.wanted,
        arrow_schema,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_ms=options.poll_timeout_ms,
    )
