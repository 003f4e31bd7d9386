"""Share groups in `__consumer_offsets`, in Kafka's format. PURE.

    key     int16 | group [| member]       value   int16 0 | fields, or null: the entry is deleted
    10  a member: its subscription          13  a member's target assignment
    11  the group's epoch                     14  a member's current assignment
    12  the epoch of the target assignment    15  the share partitions with state at the share coordinator

Source: ShareGroup* among the coordinator records of Kafka 4.3 (KIP-932).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.record_types import (
    GROUP_KEY,
    MEMBER_KEY,
    RecordType,
    decoders,
    encoders,
    target_epoch_type,
)
from ottla.ids import GroupId, MemberId, TopicId, TopicName
from ottla.protocol.primitives import Int8, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    """A member and its subscription."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


@message(versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    """The epoch of a group and the hash of its topics."""

    epoch: Int32
    metadata_hash: Int64


@message(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    """The target assignment of a member."""

    topic_partitions: list[ShareTopicPartitions]


@message(versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The present assignment of a member."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ShareTopicPartitions]


@message(versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    """Topics whose delivery state is being created, exists, or is being deleted."""

    initializing_topics: list[ShareTopicPartitionsInfo]
    initialized_topics: list[ShareTopicPartitionsInfo]
    deleting_topics: list[ShareTopicInfo]


@struct
class ShareTopicPartitions(Struct):
    """Partitions of a topic."""

    topic_id: UUID
    partitions: list[Int32]


@struct
class ShareTopicPartitionsInfo(Struct):
    """Partitions of a topic, with its name."""

    topic_id: UUID
    topic_name: str
    partitions: list[Int32]


@struct
class ShareTopicInfo(Struct):
    """A topic by id and name."""

    topic_id: UUID
    topic_name: str


# --- in here ---------------------------------------------------------------------------------------------------


class ShareMemberMetadata(NamedTuple):
    """A member joins, or changes its subscription."""

    group_id: GroupId
    member_id: MemberId
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[TopicName]


class ShareMemberDeleted(NamedTuple):
    """The tombstone of a member."""

    group_id: GroupId
    member_id: MemberId


class ShareGroupEpoch(NamedTuple):
    """A group enters an epoch."""

    group_id: GroupId
    epoch: int
    metadata_hash: int
    """Hash of the subscribed topics, as they were at this epoch."""


class ShareGroupDeleted(NamedTuple):
    """The tombstone of a group."""

    group_id: GroupId


class ShareTargetEpoch(NamedTuple):
    """The epoch for which the target assignment was computed."""

    group_id: GroupId
    epoch: int
    computed_ms: int = 0
    """When the assignment was computed; 0 if that is not known (Kafka writes it since 4.3)."""


class ShareTargetEpochDeleted(NamedTuple):
    """The tombstone of a `ShareTargetEpoch`."""

    group_id: GroupId


class ShareTarget(NamedTuple):
    """A member's part of the target assignment."""

    group_id: GroupId
    member_id: MemberId
    partitions: Partitions


class ShareTargetDeleted(NamedTuple):
    """The tombstone of a `ShareTarget`."""

    group_id: GroupId
    member_id: MemberId


class ShareAssignment(NamedTuple):
    """A member's epoch and its present assignment."""

    group_id: GroupId
    member_id: MemberId
    epoch: int
    previous_epoch: int
    """The epoch with which the member returns if it never received the new one."""
    partitions: Partitions


class ShareAssignmentDeleted(NamedTuple):
    """The tombstone of a `ShareAssignment`."""

    group_id: GroupId
    member_id: MemberId


class ShareStatePartitions(NamedTuple):
    """Which partitions the share coordinator keeps state for, or is about to, or is about to forget."""

    group_id: GroupId
    initializing: Partitions = NO_PARTITIONS
    initialized: Partitions = NO_PARTITIONS
    deleting: frozenset[TopicId] = frozenset()
    names: Mapping[TopicId, TopicName] = MappingProxyType({})
    """Names of all these topics, for people who read the log."""

    def topic_ids(self) -> set[TopicId]:
        """The topics in this record."""
        return {*self.initializing, *self.initialized, *self.deleting}


class ShareStatePartitionsDeleted(NamedTuple):
    """The tombstone of a `ShareStatePartitions`."""

    group_id: GroupId


ShareRecord: TypeAlias = (
    ShareMemberMetadata
    | ShareMemberDeleted
    | ShareGroupEpoch
    | ShareGroupDeleted
    | ShareTargetEpoch
    | ShareTargetEpochDeleted
    | ShareTarget
    | ShareTargetDeleted
    | ShareAssignment
    | ShareAssignmentDeleted
    | ShareStatePartitions
    | ShareStatePartitionsDeleted
)

_STABLE: Final = 0
"""The only state that a member of a share group can be in."""
_UNKNOWN_NAME: Final = "<UNKNOWN>"


# --- records and values ----------------------------------------------------------------------------------------------


def _write_member(record: ShareMemberMetadata) -> Message:
    return ShareGroupMemberMetadataValue(
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=sorted(record.topic_names),
    )


def _read_member(group_id: GroupId, member_id: MemberId, value: ShareGroupMemberMetadataValue) -> ShareMemberMetadata:
    names = frozenset(TopicName(name) for name in value.subscribed_topic_names)
    return ShareMemberMetadata(group_id, member_id, value.rack_id, value.client_id, value.client_host, names)


def _write_epoch(record: ShareGroupEpoch) -> Message:
    return ShareGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _read_epoch(group_id: GroupId, value: ShareGroupMetadataValue) -> ShareGroupEpoch:
    return ShareGroupEpoch(group_id, value.epoch, value.metadata_hash)


def _write_target(record: ShareTarget) -> Message:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_wire_partitions(record.partitions))


def _read_target(group_id: GroupId, member_id: MemberId, value: ShareGroupTargetAssignmentMemberValue) -> ShareTarget:
    return ShareTarget(group_id, member_id, _partitions(value.topic_partitions))


def _write_assignment(record: ShareAssignment) -> Message:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=_STABLE,
        assigned_partitions=_wire_partitions(record.partitions),
    )


def _read_assignment(
    group_id: GroupId, member_id: MemberId, value: ShareGroupCurrentMemberAssignmentValue
) -> ShareAssignment:
    partitions = _partitions(value.assigned_partitions)
    return ShareAssignment(group_id, member_id, value.member_epoch, value.previous_member_epoch, partitions)


def _write_state_partitions(record: ShareStatePartitions) -> Message:
    def named(partitions: Partitions) -> list[ShareTopicPartitionsInfo]:
        return [
            ShareTopicPartitionsInfo(
                topic_id=topic_id, topic_name=record.names.get(topic_id, _UNKNOWN_NAME), partitions=sorted(numbers)
            )
            for topic_id, numbers in sorted(partitions.items())
        ]

    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=named(record.initializing),
        initialized_topics=named(record.initialized),
        deleting_topics=[
            ShareTopicInfo(topic_id=topic_id, topic_name=record.names.get(topic_id, _UNKNOWN_NAME))
            for topic_id in sorted(record.deleting)
        ],
    )


def _read_state_partitions(group_id: GroupId, value: ShareGroupStatePartitionMetadataValue) -> ShareStatePartitions:
    named: list[ShareTopicPartitionsInfo | ShareTopicInfo] = [
        *value.initializing_topics,
        *value.initialized_topics,
        *value.deleting_topics,
    ]
    return ShareStatePartitions(
        group_id,
        _partitions(value.initializing_topics),
        _partitions(value.initialized_topics),
        frozenset(TopicId(topic.topic_id) for topic in value.deleting_topics),
        {TopicId(topic.topic_id): TopicName(topic.topic_name) for topic in named},
    )


def _wire_partitions(partitions: Partitions) -> list[ShareTopicPartitions]:
    return [
        ShareTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items())
    ]


def _partitions(topics: Iterable[ShareTopicPartitions | ShareTopicPartitionsInfo]) -> Partitions:
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in topics}


_TYPES: Final = (
    RecordType(
        10,
        MEMBER_KEY,
        ShareMemberMetadata,
        ShareMemberDeleted,
        ShareGroupMemberMetadataValue,
        _write_member,
        _read_member,
    ),
    RecordType(11, GROUP_KEY, ShareGroupEpoch, ShareGroupDeleted, ShareGroupMetadataValue, _write_epoch, _read_epoch),
    target_epoch_type(12, ShareTargetEpoch, ShareTargetEpochDeleted),
    RecordType(
        13,
        MEMBER_KEY,
        ShareTarget,
        ShareTargetDeleted,
        ShareGroupTargetAssignmentMemberValue,
        _write_target,
        _read_target,
    ),
    RecordType(
        14,
        MEMBER_KEY,
        ShareAssignment,
        ShareAssignmentDeleted,
        ShareGroupCurrentMemberAssignmentValue,
        _write_assignment,
        _read_assignment,
    ),
    RecordType(
        15,
        GROUP_KEY,
        ShareStatePartitions,
        ShareStatePartitionsDeleted,
        ShareGroupStatePartitionMetadataValue,
        _write_state_partitions,
        _read_state_partitions,
    ),
)
ENCODERS: Final = encoders(_TYPES)
DECODERS: Final = decoders(_TYPES)
