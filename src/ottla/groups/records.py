"""What `__consumer_offsets` holds about classic groups and their offsets, in Kafka's format. PURE.

    key     int16 what it is | its fields              1  offset of (group, topic, partition); 0 in logs before 0.9
    value   int16 version    | its fields, or none     2  a group, as the last rebalance left it

No value is a tombstone: the offset or the group is gone, and compaction may forget both. Other keys belong to kinds
of groups that are not served here, and are passed over.

Source: GroupMetadata, OffsetCommit and LegacyOffsetCommit among the coordinator records of Kafka 4.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.errors import CorruptMessage
from ottla.ids import ZERO_TOPIC_ID, GroupId, InstanceId, MemberId, PartitionId, TopicId, TopicName
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.primitives import NULL_UUID, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned, version_of

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(0, 2))
class GroupMetadataKey(Message):
    group: str


@message(versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: list[GroupMetadataValueMember]


@struct
class GroupMetadataValueMember(Struct):
    member_id: str
    group_instance_id: str | None = since(3, default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@message(versions=(0, 1))
class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: Int32


@message(versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: UUID = since(4, default=NULL_UUID, tag=0, ignorable=True)


MEMBER_OVERHEAD_BYTES: Final = 24
"""Six lengths and two timeouts."""


# --- in here ---------------------------------------------------------------------------------------------------


class StoredMember(NamedTuple):
    """`rebalance_timeout_ms` -1: written by a broker that knew only one timeout."""

    member_id: MemberId
    instance_id: InstanceId | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group at the end of a rebalance; `current_state_timestamp_ms` -1 where it was not recorded."""

    group_id: GroupId
    protocol_type: str
    generation: int
    protocol: str | None
    leader: MemberId | None
    current_state_timestamp_ms: int
    members: tuple[StoredMember, ...]

    @property
    def approximate_size_bytes(self) -> int:
        """Of the record's value: exact but for the names of members and clients that are not ASCII."""
        return sum(
            MEMBER_OVERHEAD_BYTES
            + len(member.member_id)
            + len(member.instance_id or "")
            + len(member.client_id)
            + len(member.client_host)
            + len(member.subscription)
            + len(member.assignment)
            for member in self.members
        )


class GroupDeleted(NamedTuple):
    group_id: GroupId


class OffsetCommitted(NamedTuple):
    """`expire_timestamp_ms` -1: kept as long as the group's rules say; `leader_epoch` -1: not known."""

    group_id: GroupId
    topic: TopicName
    partition: PartitionId
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID


class OffsetDeleted(NamedTuple):
    group_id: GroupId
    topic: TopicName
    partition: PartitionId


GroupRecord: TypeAlias = GroupMetadata | GroupDeleted | OffsetCommitted | OffsetDeleted

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2

# The versions that Kafka 4.1 writes: the last in which a field can be read by brokers since 2.1, unless it says more.
_GROUP_VALUE: Final = 3
_OFFSET_VALUE: Final = 4
_OFFSET_VALUE_WITH_EXPIRY: Final = 1


class GroupRecordFormat:
    """A `ottla.coordination.machine.RecordFormat` for `GroupRecord`."""

    __slots__ = ()

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        match record:
            case OffsetCommitted():
                return _offset_key(record.group_id, record.topic, record.partition), _offset_value(record)
            case OffsetDeleted():
                return _offset_key(record.group_id, record.topic, record.partition), None
            case GroupMetadata():
                return _group_key(record.group_id), _group_value(record)
            case GroupDeleted():
                return _group_key(record.group_id), None

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        try:
            kind = version_of(key)
            if kind in (_OFFSET_KEY, _LEGACY_OFFSET_KEY):
                return _read_offset(decode_versioned(OffsetCommitKey, key), value)
            if kind == _GROUP_KEY:
                return _read_group(GroupId(decode_versioned(GroupMetadataKey, key).group), value)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CorruptMessage(f"a record in the log of the group coordinator: {error}") from error
        return None


def _offset_key(group_id: GroupId, topic: TopicName, partition: PartitionId) -> bytes:
    return encode_versioned(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _OFFSET_KEY)


def _offset_value(record: OffsetCommitted) -> bytes:
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    return encode_versioned(value, _OFFSET_VALUE if record.expire_timestamp_ms < 0 else _OFFSET_VALUE_WITH_EXPIRY)


def _read_offset(key: OffsetCommitKey, raw: bytes | None) -> OffsetCommitted | OffsetDeleted:
    group_id, topic, partition = GroupId(key.group), TopicName(key.topic), PartitionId(key.partition)
    if raw is None:
        return OffsetDeleted(group_id, topic, partition)
    value = decode_versioned(OffsetCommitValue, raw)
    return OffsetCommitted(
        group_id,
        topic,
        partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        TopicId(value.topic_id),
    )


def _group_key(group_id: GroupId) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), _GROUP_KEY)


def _group_value(record: GroupMetadata) -> bytes:
    value = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.current_state_timestamp_ms,
        members=[
            GroupMetadataValueMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )
    return encode_versioned(value, _GROUP_VALUE)


def _read_group(group_id: GroupId, raw: bytes | None) -> GroupMetadata | GroupDeleted:
    if raw is None:
        return GroupDeleted(group_id)
    value = decode_versioned(GroupMetadataValue, raw)
    return GroupMetadata(
        group_id,
        value.protocol_type,
        value.generation,
        value.protocol,
        None if value.leader is None else MemberId(value.leader),
        value.current_state_timestamp,
        tuple(
            StoredMember(
                MemberId(member.member_id),
                None if member.group_instance_id is None else InstanceId(member.group_instance_id),
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )
