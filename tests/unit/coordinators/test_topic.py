"""Where a key lives."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from ottla.cluster.image import GROUP_METADATA_TOPIC, PartitionImage, TopicImage, empty_image
from ottla.coordinators.topic import CoordinatorTopic, java_string_hash
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId
from ottla.records.batch import Buffer


class NoLog:
    async def append_committed(self, partition: PartitionId, batch: bytearray) -> object:
        raise AssertionError("nothing is written")

    def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        raise AssertionError("nothing is read")

    def producer(self, partition: PartitionId, producer_id: int) -> None:
        raise AssertionError("nobody asks for a producer")


async def create() -> None:
    raise AssertionError("nobody asked for the topic")


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("a", 97), ("hello", 99_162_322), ("polygenelubricants", 1 << 31)],
)
def test_strings_hash_as_in_java(text: str, number: int) -> None:
    assert java_string_hash(text) == number


def test_characters_outside_the_basic_plane_count_as_two() -> None:
    assert java_string_hash("😀") == (31 * 0xD83D + 0xDE00) % 2**32


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("hello", 22),
        ("my-transactional-id", 46),  # hashes to -959806496, and counts by its absolute value
        ("polygenelubricants", 0),  # the smallest int has none
    ],
)
def test_the_sign_of_the_hash_is_dropped(key: str, partition: int) -> None:
    assert CoordinatorTopic(GROUP_METADATA_TOPIC, NoLog(), create, 50).partition_for(key) == partition


def test_keys_are_spread_over_the_partitions_that_there_are() -> None:
    topic = CoordinatorTopic(GROUP_METADATA_TOPIC, NoLog(), create, 50)
    topic.count_partitions(empty_image("c"))
    assert topic.partition_count == 50
    led_by = BrokerId(1)
    partitions = tuple(
        PartitionImage(PartitionId(n), led_by, LeaderEpoch(0), (led_by,), (led_by,), 0) for n in range(3)
    )
    image = TopicImage(GROUP_METADATA_TOPIC, TopicId(UUID(int=7)), partitions)
    topic.count_partitions(empty_image("c")._replace(topics={GROUP_METADATA_TOPIC: image}))
    assert topic.partition_for("hello") == 99_162_322 % 3
