"""Readers as Spark's data source API asks for them: one that ends, and one that goes on."""

# ruff: noqa: N802 - the names of the methods are Spark's

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ottla.spark.errors import DataLossError
from ottla.spark.fetch import read_range
from ottla.spark.metadata import TopicMetadata
from ottla.spark.offsets import FlatOffsets, OffsetRange, admit, as_json, flatten, split
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
        start = metadata.resolve(options.topics, options.starting, "startingOffsets")
        end = metadata.resolve(options.topics, options.ending, "endingOffsets")
        return _tasks(start, end, options.min_partitions) or [_nothing(start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches; the offsets between them are kept by Spark's checkpoint.

    Partitions added to a topic while the query runs are read from their beginning.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: FlatOffsets | None = None

    def initialOffset(self) -> StreamOffset:
        options = self._options
        metadata = TopicMetadata(options.client)
        return as_json(metadata.resolve(options.topics, options.starting, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        latest = self._latest() if self._target is None else self._target
        begin = self._begin(flatten(start), latest)
        self._check_not_behind(begin, latest)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return as_json(admit(begin, latest, max_rows))

    def reportLatestOffset(self) -> StreamOffset:
        return as_json(self._latest())

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        until = flatten(end)
        return _tasks(self._begin(flatten(start), until), until, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: StreamOffset) -> None:
        """Nothing to do: the checkpoint has it."""

    def stop(self) -> None:
        """Nothing to do: connections end with their process."""

    def _latest(self) -> FlatOffsets:
        metadata = TopicMetadata(self._options.client)
        return metadata.latest(metadata.partitions(self._options.topics))

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


def _tasks(start: FlatOffsets, end: FlatOffsets, min_partitions: int) -> list[InputPartition]:
    ranges = [
        OffsetRange(partition, start[partition], until)
        for partition, until in sorted(end.items())
        if start[partition] < until
    ]
    return [RangePartition(each) for each in split(ranges, min_partitions)]


def _nothing(start: FlatOffsets) -> InputPartition:
    """A task without records: Spark gives a batch read without tasks a placeholder that says nothing of what it is."""
    partition, offset = next(iter(sorted(start.items())))
    return RangePartition(OffsetRange(partition, offset, offset))


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
