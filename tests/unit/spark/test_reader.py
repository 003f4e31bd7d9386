"""Where a stream goes on, without Spark and without brokers."""

from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from ottla.spark import fetch, reader
from ottla.spark.errors import DataLossError
from ottla.spark.metadata import Layout
from ottla.spark.offsets import FlatOffsets, Partition, TopicIds
from ottla.spark.options import ReadOptions
from ottla.spark.reader import RangePartition, StreamReader
from ottla.spark.stream_offset import Cut, StreamJson, StreamOffset

A, B = Partition("t", 0), Partition("t", 1)
FIRST, SECOND = UUID(int=1), UUID(int=2)


class FakeMetadata:
    """Logs as (first offset, end)."""

    def __init__(self, logs: dict[Partition, tuple[int, int]], ids: TopicIds) -> None:
        self.logs, self.ids = logs, ids

    def __call__(self, *_: Any, **__: Any) -> "FakeMetadata":
        return self

    def layout(self, *_: Any, **__: Any) -> Layout:
        return Layout(sorted(self.logs), self.ids)

    def resolve(self, partitions: Any, *_: Any) -> FlatOffsets:
        return self.latest(partitions)

    def earliest(self, partitions: Any) -> FlatOffsets:
        return {each: self.logs[each][0] for each in partitions}

    def latest(self, partitions: Any) -> FlatOffsets:
        return {each: self.logs[each][1] for each in partitions}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeMetadata:
    fake = FakeMetadata({A: (0, 10)}, {"t": FIRST})
    monkeypatch.setattr(reader, "TopicMetadata", fake)
    monkeypatch.setattr(fetch, "TopicMetadata", fake)
    return fake


def stream(**options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}
    return StreamReader(ReadOptions.parse(given, streaming=True), StructType([]))


def read_up_to(offsets: FlatOffsets, topic_id: UUID | None = FIRST) -> StreamJson:
    ids = {} if topic_id is None else {"t": topic_id}
    return StreamOffset(offsets, ids, Cut(0, None)).as_json()


def next_batch(of: StreamReader, start: StreamJson) -> tuple[FlatOffsets, list[tuple[Partition, int, int]]]:
    """Where it ends, and its tasks."""
    end = of.latestOffset(start, ReadAllAvailable())
    tasks = [each.wanted for each in of.partitions(start, end) if isinstance(each, RangePartition)]
    return StreamOffset.parse(end).offsets, [(each.partition, each.start, each.end) for each in tasks]


def test_a_log_of_the_same_topic_that_lost_its_end_is_not_read_again(brokers: FakeMetadata) -> None:
    start = read_up_to({A: 12})
    with pytest.raises(DataLossError, match="t-0 ends at offset 10, but the query has read up to offset 12"):
        next_batch(stream(), start)

    tolerant = stream(failOnDataLoss="false")
    assert next_batch(tolerant, start) == ({A: 10}, [])
    brokers.logs[A] = (0, 13)
    assert next_batch(tolerant, read_up_to({A: 10})) == ({A: 13}, [(A, 10, 13)])


@pytest.mark.parametrize("known", [SECOND, None])
def test_a_log_that_may_be_of_another_topic_is_read_from_its_beginning(
    brokers: FakeMetadata, known: UUID | None
) -> None:
    tolerant = stream(failOnDataLoss="false")
    assert next_batch(tolerant, read_up_to({A: 12}, known)) == ({A: 0}, [])
    assert next_batch(tolerant, read_up_to({A: 0})) == ({A: 10}, [(A, 0, 10)])


def test_where_a_new_partition_begins_is_noted_down_before_it_is_read(brokers: FakeMetadata) -> None:
    brokers.logs[B] = (0, 5)
    query = stream()
    assert next_batch(query, read_up_to({A: 9})) == ({A: 10, B: 0}, [(A, 9, 10)])

    brokers.logs[B] = (3, 5)  # trimmed meanwhile: the task that reads from offset 0 says so
    assert next_batch(query, read_up_to({A: 10, B: 0})) == ({A: 10, B: 5}, [(B, 0, 5)])


def test_a_new_partition_that_lost_its_beginning_is_a_loss(brokers: FakeMetadata) -> None:
    brokers.logs[B] = (3, 5)
    with pytest.raises(DataLossError, match="t-1 was added and starts at offset 3 instead of 0"):
        next_batch(stream(), read_up_to({A: 10}))
    assert next_batch(stream(failOnDataLoss="false"), read_up_to({A: 10})) == ({A: 10, B: 3}, [])


def test_a_topic_that_begins_to_match_may_have_lost_its_beginning(brokers: FakeMetadata) -> None:
    brokers.logs[Partition("u", 0)] = (3, 5)
    assert next_batch(stream(), read_up_to({A: 10}))[0] == {A: 10, Partition("u", 0): 3}


def test_a_batch_of_a_checkpoint_of_sparks_own_source_keeps_its_new_partitions(brokers: FakeMetadata) -> None:
    brokers.logs[B] = (0, 5)
    tasks = stream().partitions({"t": {"0": 10}}, {"t": {"0": 10, "1": 4}})
    assert [each.wanted.end for each in tasks if isinstance(each, RangePartition)] == [4]


def test_micro_batches_are_small_after_a_start_and_grow_up_to_the_limit(brokers: FakeMetadata) -> None:
    brokers.logs = {A: (0, 1_000)}
    reader, start, ends = stream(firstOffsetsPerTrigger="10"), read_up_to({A: 0}), []
    for _ in range(4):
        start = reader.latestOffset(start, ReadMaxRows(100))
        ends.append(start["t"]["0"])
    assert ends == [10, 50, 150, 250]
    again = stream(firstOffsetsPerTrigger="10")
    assert again.latestOffset(start, ReadAllAvailable())["t"]["0"] == 260


def test_latest_is_the_same_offset_when_spark_asks_for_it_again(brokers: FakeMetadata) -> None:
    reader = stream(startingOffsets="latest")
    start = reader.initialOffset()
    brokers.logs = {A: (0, 15)}
    end = reader.latestOffset(start, ReadAllAvailable())
    brokers.logs = {A: (0, 20)}
    assert reader.initialOffset() == start
    assert [each.wanted.end - each.wanted.start for each in reader.partitions(start, end)] == [5]  # type: ignore[attr-defined]
