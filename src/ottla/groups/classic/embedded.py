"""The bytes that consumers of the classic protocol exchange, read and written on their behalf. PURE.

A group in which some members are assigned by the coordinator and others use the classic protocol (KIP-848,
migration) needs both: subscriptions are read, assignments written. Everywhere else these bytes are opaque.

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3.
"""

from collections.abc import Mapping
from typing import Final

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.topics import TopicsView
from ottla.ids import MemberId, TopicId, TopicName
from ottla.protocol.compiled import decode
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.versioned import encode_versioned, version_of

OLDEST: Final = 0
NEWEST: Final = 3


def read_subscription(raw: bytes) -> ConsumerProtocolSubscription:
    """Raises `MalformedMessage` or `UnsupportedVersion`; a version later than `NEWEST` is read as that one."""
    return decode(ConsumerProtocolSubscription, raw, min(version_of(raw), NEWEST), 2)


def read_assignment(raw: bytes) -> ConsumerProtocolAssignment:
    """Raises like `read_subscription`."""
    return decode(ConsumerProtocolAssignment, raw, min(version_of(raw), NEWEST), 2)


def write_assignment(partitions: Partitions, topics: TopicsView, subscription: bytes) -> bytes:
    """In the version of the member's own subscription; topics that are gone are left out."""
    assigned = [
        TopicPartition(topic=topic.name, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
        if (topic := topics.by_id(topic_id)) is not None
    ]
    version = version_of(subscription) if len(subscription) >= 2 else OLDEST
    version = min(max(version, OLDEST), NEWEST)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def partitions_of(named: list[TopicPartition], topics: TopicsView) -> Partitions:
    """By id; topics that are gone are left out."""
    found: dict[TopicId, frozenset[int]] = {}
    for entry in named:
        topic = topics.by_name(TopicName(entry.topic))
        if topic is not None and entry.partitions:
            found[topic.topic_id] = frozenset(entry.partitions)
    return found or NO_PARTITIONS


def assigned_by_name(assignments: Mapping[MemberId, bytes]) -> Mapping[MemberId, Mapping[TopicName, frozenset[int]]]:
    """What each member was given, as far as it can be read."""
    read: dict[MemberId, Mapping[TopicName, frozenset[int]]] = {}
    for member_id, raw in assignments.items():
        try:
            assigned = read_assignment(raw).assigned_partitions if raw else []
        except (MalformedMessage, UnsupportedVersion):
            continue
        read[member_id] = {TopicName(entry.topic): frozenset(entry.partitions) for entry in assigned}
    return read
