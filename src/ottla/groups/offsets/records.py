"""Committed offsets in `__consumer_offsets`, in Kafka's format. PURE.

    key     int16 1 (0 in logs before 0.9) | group, topic, partition
    value   int16 version | its fields, or none: the offset is gone

Source: OffsetCommit and LegacyOffsetCommit among the coordinator records of Kafka 4.3.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.groups.record_types import Decoders, Encoders
from ottla.ids import ZERO_TOPIC_ID, GroupId, PartitionId, TopicId, TopicName
from ottla.protocol.primitives import NULL_UUID, Int32, Int64
from ottla.protocol.schema import Message, message, since
from ottla.protocol.versioned import decode_versioned, encode_versioned


@message(versions=(0, 1))
class OffsetCommitKey(Message):
    """Key of a committed offset, record types 0 and 1 of `__consumer_offsets`."""

    group: str
    topic: str
    partition: Int32


@message(versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    """A committed offset; times in milliseconds since the epoch."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: UUID = since(4, default=NULL_UUID, tag=0, ignorable=True)


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
    """The tombstone of a committed offset."""

    group_id: GroupId
    topic: TopicName
    partition: PartitionId


OffsetRecord: TypeAlias = OffsetCommitted | OffsetDeleted

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1

_OFFSET_VALUE: Final = 4
_OFFSET_VALUE_WITH_EXPIRY: Final = 1


def _key(record: OffsetRecord) -> bytes:
    key = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    return encode_versioned(key, _OFFSET_KEY)


def _encode_deletion(record: OffsetDeleted) -> tuple[bytes, None]:
    return _key(record), None


def _encode_commit(record: OffsetCommitted) -> tuple[bytes, bytes]:
    value = OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    version = _OFFSET_VALUE if record.expire_timestamp_ms < 0 else _OFFSET_VALUE_WITH_EXPIRY
    return _key(record), encode_versioned(value, version)


def _decode(raw_key: bytes, raw: bytes | None) -> OffsetRecord:
    key = decode_versioned(OffsetCommitKey, raw_key)
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


ENCODERS: Final[Encoders] = MappingProxyType({OffsetCommitted: _encode_commit, OffsetDeleted: _encode_deletion})
DECODERS: Final[Decoders] = MappingProxyType({_OFFSET_KEY: _decode, _LEGACY_OFFSET_KEY: _decode})
