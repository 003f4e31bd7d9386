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
from ottla.groups.record_types import Decoders, Encoders
from ottla.ids import GroupId, MemberId, TopicId, TopicName
from ottla.protocol.primitives import Int8, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(11, 15))
class ShareGroupKey(Message):
    group_id: str


@message(versions=(10, 14))
class ShareGroupMemberKey(Message):
    group_id: str
    member_id: str


@message(versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]


@message(versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    epoch: Int32
    metadata_hash: Int64


@message(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = since(0, tag=0, default=0, ignorable=True)


@message(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[ShareTopicPartitions]


@message(versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ShareTopicPartitions]


@message(versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    initializing_topics: list[ShareTopicPartitionsInfo]
    initialized_topics: list[ShareTopicPartitionsInfo]
    deleting_topics: list[ShareTopicInfo]


@struct
class ShareTopicPartitions(Struct):
    topic_id: UUID
    partitions: list[Int32]


@struct
class ShareTopicPartitionsInfo(Struct):
    topic_id: UUID
    topic_name: str
    partitions: list[Int32]


@struct
class ShareTopicInfo(Struct):
    topic_id: UUID
    topic_name: str


# --- in here ---------------------------------------------------------------------------------------------------


class ShareMemberMetadata(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[TopicName]


class ShareMemberDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class ShareGroupEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    metadata_hash: int
    """Hash of the subscribed topics, as they were at this epoch."""


class ShareGroupDeleted(NamedTuple):
    group_id: GroupId


class ShareTargetEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    computed_ms: int = 0
    """When the assignment was computed; 0 if that is not known (Kafka writes it since 4.3)."""


class ShareTargetEpochDeleted(NamedTuple):
    group_id: GroupId


class ShareTarget(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    partitions: Partitions


class ShareTargetDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class ShareAssignment(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    epoch: int
    previous_epoch: int
    """The epoch with which the member returns if it never received the new one."""
    partitions: Partitions


class ShareAssignmentDeleted(NamedTuple):
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

_MEMBER_KEY: Final = 10
_GROUP_KEY: Final = 11
_TARGET_EPOCH_KEY: Final = 12
_TARGET_KEY: Final = 13
_ASSIGNMENT_KEY: Final = 14
_STATE_KEY: Final = 15
_VALUE: Final = 0
_STABLE: Final = 0
"""The only state that a member of a share group can be in."""
_UNKNOWN_NAME: Final = "<UNKNOWN>"


# --- writing ---------------------------------------------------------------------------------------------------


def _group_key(kind: int, group_id: GroupId) -> bytes:
    return encode_versioned(ShareGroupKey(group_id=group_id), kind)


def _member_key(kind: int, group_id: GroupId, member_id: MemberId) -> bytes:
    return encode_versioned(ShareGroupMemberKey(group_id=group_id, member_id=member_id), kind)


def _encode_member(record: ShareMemberMetadata) -> tuple[bytes, bytes]:
    value = ShareGroupMemberMetadataValue(
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=sorted(record.topic_names),
    )
    return _member_key(_MEMBER_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_epoch(record: ShareGroupEpoch) -> tuple[bytes, bytes]:
    value = ShareGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)
    return _group_key(_GROUP_KEY, record.group_id), encode_versioned(value, _VALUE)


def _encode_target_epoch(record: ShareTargetEpoch) -> tuple[bytes, bytes]:
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.computed_ms
    )
    return _group_key(_TARGET_EPOCH_KEY, record.group_id), encode_versioned(value, _VALUE)


def _encode_target(record: ShareTarget) -> tuple[bytes, bytes]:
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=_wire_partitions(record.partitions))
    return _member_key(_TARGET_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_assignment(record: ShareAssignment) -> tuple[bytes, bytes]:
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=_STABLE,
        assigned_partitions=_wire_partitions(record.partitions),
    )
    return _member_key(_ASSIGNMENT_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_state_partitions(record: ShareStatePartitions) -> tuple[bytes, bytes]:
    def named(partitions: Partitions) -> list[ShareTopicPartitionsInfo]:
        return [
            ShareTopicPartitionsInfo(
                topic_id=topic_id, topic_name=record.names.get(topic_id, _UNKNOWN_NAME), partitions=sorted(numbers)
            )
            for topic_id, numbers in sorted(partitions.items())
        ]

    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=named(record.initializing),
        initialized_topics=named(record.initialized),
        deleting_topics=[
            ShareTopicInfo(topic_id=topic_id, topic_name=record.names.get(topic_id, _UNKNOWN_NAME))
            for topic_id in sorted(record.deleting)
        ],
    )
    return _group_key(_STATE_KEY, record.group_id), encode_versioned(value, _VALUE)


def _wire_partitions(partitions: Partitions) -> list[ShareTopicPartitions]:
    return [
        ShareTopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
        for topic_id, numbers in sorted(partitions.items())
    ]


# --- reading ---------------------------------------------------------------------------------------------------


def _read_group_key(raw: bytes) -> GroupId:
    return GroupId(decode_versioned(ShareGroupKey, raw).group_id)


def _read_member_key(raw: bytes) -> tuple[GroupId, MemberId]:
    key = decode_versioned(ShareGroupMemberKey, raw)
    return GroupId(key.group_id), MemberId(key.member_id)


def _decode_member(key: bytes, raw: bytes | None) -> ShareMemberMetadata | ShareMemberDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return ShareMemberDeleted(group_id, member_id)
    value = decode_versioned(ShareGroupMemberMetadataValue, raw)
    names = frozenset(TopicName(name) for name in value.subscribed_topic_names)
    return ShareMemberMetadata(group_id, member_id, value.rack_id, value.client_id, value.client_host, names)


def _decode_epoch(key: bytes, raw: bytes | None) -> ShareGroupEpoch | ShareGroupDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return ShareGroupDeleted(group_id)
    value = decode_versioned(ShareGroupMetadataValue, raw)
    return ShareGroupEpoch(group_id, value.epoch, value.metadata_hash)


def _decode_target_epoch(key: bytes, raw: bytes | None) -> ShareTargetEpoch | ShareTargetEpochDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return ShareTargetEpochDeleted(group_id)
    value = decode_versioned(ShareGroupTargetAssignmentMetadataValue, raw)
    return ShareTargetEpoch(group_id, value.assignment_epoch, value.assignment_timestamp)


def _decode_target(key: bytes, raw: bytes | None) -> ShareTarget | ShareTargetDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return ShareTargetDeleted(group_id, member_id)
    value = decode_versioned(ShareGroupTargetAssignmentMemberValue, raw)
    return ShareTarget(group_id, member_id, _partitions(value.topic_partitions))


def _decode_assignment(key: bytes, raw: bytes | None) -> ShareAssignment | ShareAssignmentDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return ShareAssignmentDeleted(group_id, member_id)
    value = decode_versioned(ShareGroupCurrentMemberAssignmentValue, raw)
    partitions = _partitions(value.assigned_partitions)
    return ShareAssignment(group_id, member_id, value.member_epoch, value.previous_member_epoch, partitions)


def _decode_state_partitions(key: bytes, raw: bytes | None) -> ShareStatePartitions | ShareStatePartitionsDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return ShareStatePartitionsDeleted(group_id)
    value = decode_versioned(ShareGroupStatePartitionMetadataValue, raw)
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


def _partitions(topics: Iterable[ShareTopicPartitions | ShareTopicPartitionsInfo]) -> Partitions:
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in topics}


ENCODERS: Final[Encoders] = MappingProxyType(
    {
        ShareMemberMetadata: _encode_member,
        ShareMemberDeleted: lambda record: (_member_key(_MEMBER_KEY, *record), None),
        ShareGroupEpoch: _encode_epoch,
        ShareGroupDeleted: lambda record: (_group_key(_GROUP_KEY, *record), None),
        ShareTargetEpoch: _encode_target_epoch,
        ShareTargetEpochDeleted: lambda record: (_group_key(_TARGET_EPOCH_KEY, *record), None),
        ShareTarget: _encode_target,
        ShareTargetDeleted: lambda record: (_member_key(_TARGET_KEY, *record), None),
        ShareAssignment: _encode_assignment,
        ShareAssignmentDeleted: lambda record: (_member_key(_ASSIGNMENT_KEY, *record), None),
        ShareStatePartitions: _encode_state_partitions,
        ShareStatePartitionsDeleted: lambda record: (_group_key(_STATE_KEY, *record), None),
    }
)
DECODERS: Final[Decoders] = MappingProxyType(
    {
        _MEMBER_KEY: _decode_member,
        _GROUP_KEY: _decode_epoch,
        _TARGET_EPOCH_KEY: _decode_target_epoch,
        _TARGET_KEY: _decode_target,
        _ASSIGNMENT_KEY: _decode_assignment,
        _STATE_KEY: _decode_state_partitions,
    }
)
