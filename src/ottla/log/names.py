"""Names of the files and directories of a log, as Kafka writes them."""

import re
from typing import Final
from uuid import uuid4

from ottla.ids import PartitionId, TopicName, TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
STRAY: Final = "-stray"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of a quorum's metadata, which is no partition of a topic."""
METADATA_SNAPSHOT: Final = ".checkpoint"
"""A snapshot of it: record batches, as in a segment."""

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
_FUTURE_DIRECTORY: Final = re.compile(r"^(\S+)-(\d+)\.[0-9a-f]{32}-future$")
_DELETE_DIRECTORY: Final = re.compile(r"^\S+-\d+\.[0-9a-f]{32}-delete$")
_SET_APART_DIRECTORY: Final = re.compile(r"^(\S+)-(\d+)\.[0-9a-f]{32}-(?:delete|stray)$")
_MAX_DIRECTORY_NAME: Final = 255


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and its like, in `directory`."""
    return f"{directory}/{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a segment file's name; None if it is not one."""
    head = name.partition(".")[0]
    return int(head) if len(head) == 20 and head.isdecimal() else None


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no partition's."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdecimal():
        return None
    return TopicPartition(TopicName(topic), PartitionId(int(number)))


def deletion_name(partition: TopicPartition) -> str:
    """A fresh name for a partition's directory that waits to be removed."""
    suffix = f"-{partition.partition}.{uuid4().hex}-delete"
    return partition.topic[: _MAX_DIRECTORY_NAME - len(suffix)] + suffix


def stray_name(partition: TopicPartition) -> str:
    """A fresh name for a partition's directory that is set aside."""
    suffix = f"-{partition.partition}.{uuid4().hex}{STRAY}"
    return partition.topic[: _MAX_DIRECTORY_NAME - len(suffix)] + suffix


def future_name(partition: TopicPartition) -> str:
    """A fresh name for the directory of a copy that shall take the place of a partition's log (KIP-113)."""
    suffix = f"-{partition.partition}.{uuid4().hex}-future"
    return partition.topic[: _MAX_DIRECTORY_NAME - len(suffix)] + suffix


def future_partition_of(name: str) -> TopicPartition | None:
    """The partition that a directory of this name was to hold one day; None if it was not."""
    found = _FUTURE_DIRECTORY.match(name)
    return None if found is None else TopicPartition(TopicName(found[1]), PartitionId(int(found[2])))


def set_apart_partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory was deleted or set aside under this name; None if it is another name. A long
    topic's name is cut off."""
    found = _SET_APART_DIRECTORY.match(name)
    return None if found is None else TopicPartition(TopicName(found[1]), PartitionId(int(found[2])))


def is_deletion_name(name: str) -> bool:
    return _DELETE_DIRECTORY.match(name) is not None
