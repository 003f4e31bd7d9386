"""PURE. Changes in parts that a store with a limit takes at once, in an order in which each part may be the last.

    many partitions change    so many at a time
    a large topic is made     the topic, all of its partitions NOT_YET_LED; then their states, so many at a time
    a large topic grows       likewise
    a large topic goes        marked; its states, so many at a time; then the topic and the mark

What stands between two parts is what a controller that takes over knows how to end: partitions without a state are led
for the first time, and a topic with a mark is deleted. Source: Kafka 3.9, which writes and deletes in this order.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.cluster.commands import BeginDeletion, Command, CreateTopic, DeleteTopic, SetPartitions
from ottla.cluster.image import NO_LEADER, NOT_YET_LED, MetadataImage, PartitionImage
from ottla.ids import LeaderEpoch, TopicName

PARTITIONS_PER_COMMIT: Final = 500
"""With the longest names, that is half of what ZooKeeper takes at once."""


class Piece(NamedTuple):
    """Something of a command, small enough for one commit."""

    number: int
    """The number of the command it is part of."""
    command: Command


def in_parts(commands: Sequence[Command], image: MetadataImage) -> list[list[Piece]]:
    """The commands, of which `image` is the image before; those that are small together."""
    parts: list[list[Piece]] = [[]]
    room = PARTITIONS_PER_COMMIT
    for number, command in enumerate(commands):
        for piece in _pieces(command, image):
            size = _size(piece, image)
            if size > room:
                parts.append([])
                room = PARTITIONS_PER_COMMIT
            parts[-1].append(Piece(number, piece))
            room -= size
    return parts


def whole_in_parts(commands: Sequence[Command], image: MetadataImage) -> list[list[Piece]]:
    """The same without dividing a command, for a store that takes all at once: what stands between two parts is whole.

    What a commit costs on the loop is bounded so, but for a large topic, which is a part of its own.
    """
    parts: list[list[Piece]] = []
    room = 0
    for number, command in enumerate(commands):
        size = _size(command, image)
        if size > room:
            parts.append([])
            room = PARTITIONS_PER_COMMIT
        parts[-1].append(Piece(number, command))
        room -= size
    return parts


def _pieces(command: Command, image: MetadataImage) -> Iterator[Command]:
    match command:
        case CreateTopic(topic, configs) if len(topic.partitions) > PARTITIONS_PER_COMMIT:
            unled = tuple(map(without_state, topic.partitions))
            yield CreateTopic(topic._replace(partitions=unled), configs)
            yield from _some_at_a_time(topic.name, topic.partitions)
        case SetPartitions(name, partitions) if len(partitions) > PARTITIONS_PER_COMMIT:
            known = len(image.topics[name].partitions) if name in image.topics else 0
            new = [partition for partition in partitions if partition.partition >= known]
            if len(new) > PARTITIONS_PER_COMMIT:
                yield SetPartitions(name, tuple(map(without_state, new)))
            yield from _some_at_a_time(name, partitions)
        case DeleteTopic(name) if len(image.topics[name].partitions) > PARTITIONS_PER_COMMIT:
            yield BeginDeletion(name)
            yield from _some_at_a_time(name, tuple(map(without_state, image.topics[name].partitions)))
            yield command
        case _:
            yield command


def _some_at_a_time(name: TopicName, partitions: Sequence[PartitionImage]) -> Iterator[SetPartitions]:
    for start in range(0, len(partitions), PARTITIONS_PER_COMMIT):
        yield SetPartitions(name, tuple(partitions[start : start + PARTITIONS_PER_COMMIT]))


def _size(piece: Command, image: MetadataImage) -> int:
    """How many states it writes or deletes; 1 for anything else. A large topic itself has a part of its own."""
    match piece:
        case CreateTopic(topic, _):
            count = len(topic.partitions)
        case SetPartitions(_, partitions):
            count = len(partitions)
        case DeleteTopic(name):
            count = len(image.topics[name].partitions)
        case _:
            count = 1
    return max(1, min(count, PARTITIONS_PER_COMMIT))


def without_state(partition: PartitionImage) -> PartitionImage:
    """The partition as it is before it is led for the first time."""
    return partition._replace(leader=NO_LEADER, leader_epoch=LeaderEpoch(-1), isr=(), partition_epoch=NOT_YET_LED)
