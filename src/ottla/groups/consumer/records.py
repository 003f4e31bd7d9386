"""Consumer groups of KIP-848 in `__consumer_offsets`, in Kafka's format. PURE.

    key  3  the group's epoch, and the hash of the topics it reads       group
         4  its topics, as brokers before 4.1 wrote them; only deleted   group
         5  a member, as it described itself                             group, member
         6  the epoch of the target assignment                           group
         7  what the target assignment gives a member                    group, member
         8  where the member stands on its way there                     group, member
        16  the topics that a regular expression stands for              group, expression

No value is a tombstone. Values are version 0 of their format throughout.

Source: ConsumerGroup* among the coordinator records of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.events import Assignor
from ottla.groups.record_types import Decoders, Encoders
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName
from ottla.protocol.primitives import Int8, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(3, 6))
class ConsumerGroupKey(Message):
    """The key of a record about a group as a whole; the version in front gives the type of record."""

    group_id: str


@message(versions=(5, 8))
class ConsumerGroupMemberKey(Message):
    """The key of a record about a member; the version in front gives the type of record."""

    group_id: str
    member_id: str


@message(versions=(16, 16))
class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    epoch: Int32
    metadata_hash: Int64 = since(0, tag=0, default=0, ignorable=True)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = since(
        0, tag=0, default_factory=lambda: ClassicMemberMetadata()
    )
    """Null is written out: of a member without the field, Kafka believes that it speaks the classic protocol."""


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = since(default_factory=list)


@struct
class ClassicProtocol(Struct):
    name: str
    metadata: bytes


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = since(0, tag=0, default=0, ignorable=True)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartitions]


@message(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@struct
class TopicPartitions(Struct):
    topic_id: UUID
    partitions: list[Int32]


@message(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: Int64
    timestamp: Int64


# --- in here ---------------------------------------------------------------------------------------------------


class MemberState(IntEnum):
    """Where a member stands between what it has and what the target assignment gives it."""

    STABLE = 0
    """It has what its epoch's target assignment gives it."""
    UNREVOKED_PARTITIONS = 1
    """It is to give up partitions before it can enter the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up yet."""
    UNKNOWN = 127
    """Written by a later version."""


class ClassicMember(NamedTuple):
    """The data that a member of the classic protocol sent when it joined (KIP-848, migration)."""

    session_timeout_ms: int
    protocols: tuple[Assignor, ...]


class ConsumerGroupEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    metadata_hash: int


class ConsumerGroupDeleted(NamedTuple):
    group_id: GroupId


class SubscriptionMetadata(NamedTuple):
    """Written by brokers before 4.1: superseded by the hash, and to be deleted."""

    group_id: GroupId


class SubscriptionMetadataDeleted(NamedTuple):
    group_id: GroupId


class MemberSubscription(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[TopicName]
    topic_regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMember | None


class MemberSubscriptionDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class TargetAssignmentEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    computed_ms: int = 0
    """When the assignment was computed; 0 if that is not known (Kafka writes it since 4.3)."""


class TargetAssignmentEpochDeleted(NamedTuple):
    group_id: GroupId


class TargetAssignment(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    partitions: Partitions


class TargetAssignmentDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class CurrentAssignment(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions


class CurrentAssignmentDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class ResolvedRegex(NamedTuple):
    group_id: GroupId
    regex: str
    topics: frozenset[TopicName]
    version: int
    timestamp_ms: int


class ResolvedRegexDeleted(NamedTuple):
    group_id: GroupId
    regex: str


ConsumerRecord: TypeAlias = (
    ConsumerGroupEpoch
    | ConsumerGroupDeleted
    | SubscriptionMetadata
    | SubscriptionMetadataDeleted
    | MemberSubscription
    | MemberSubscriptionDeleted
    | TargetAssignmentEpoch
    | TargetAssignmentEpochDeleted
    | TargetAssignment
    | TargetAssignmentDeleted
    | CurrentAssignment
    | CurrentAssignmentDeleted
    | ResolvedRegex
    | ResolvedRegexDeleted
)

_EPOCH: Final = 3
_SUBSCRIPTION_METADATA: Final = 4
_MEMBER: Final = 5
_TARGET_EPOCH: Final = 6
_TARGET: Final = 7
_CURRENT: Final = 8
_REGEX: Final = 16
_VALUE: Final = 0

# --- records to bytes ------------------------------------------------------------------------------------------


def _group_key(record: Any, key_type: int) -> bytes:
    return encode_versioned(ConsumerGroupKey(group_id=record.group_id), key_type)


def _member_key(record: Any, key_type: int) -> bytes:
    return encode_versioned(ConsumerGroupMemberKey(group_id=record.group_id, member_id=record.member_id), key_type)


def _regex_key(record: Any, key_type: int) -> bytes:
    key = ConsumerGroupRegularExpressionKey(group_id=record.group_id, regular_expression=record.regex)
    return encode_versioned(key, key_type)


def _epoch_value(record: ConsumerGroupEpoch) -> Message:
    return ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _member_value(record: MemberSubscription) -> Message:
    classic = record.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=sorted(record.topic_names),
        subscribed_topic_regex=record.topic_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in classic.protocols
            ],
        ),
    )


def _target_epoch_value(record: TargetAssignmentEpoch) -> Message:
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.computed_ms
    )


def _target_value(record: TargetAssignment) -> Message:
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_to_wire(record.partitions))


def _current_value(record: CurrentAssignment) -> Message:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=record.state,
        assigned_partitions=_to_wire(record.assigned),
        partitions_pending_revocation=_to_wire(record.pending_revocation),
    )


def _regex_value(record: ResolvedRegex) -> Message:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(record.topics), version=record.version, timestamp=record.timestamp_ms
    )


def _to_wire(partitions: Partitions) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in partitions.items()]


def _encoder(
    key: Callable[[Any, int], bytes], key_type: int, value: Callable[[Any], Message] | None = None
) -> Callable[[Any], tuple[bytes, bytes | None]]:
    """What makes key and value of one class of records; without `value`, a tombstone."""

    def encode(record: Any) -> tuple[bytes, bytes | None]:
        return key(record, key_type), None if value is None else encode_versioned(value(record), _VALUE)

    return encode


ENCODERS: Final[Encoders] = MappingProxyType(
    {
        ConsumerGroupEpoch: _encoder(_group_key, _EPOCH, _epoch_value),
        ConsumerGroupDeleted: _encoder(_group_key, _EPOCH),
        SubscriptionMetadataDeleted: _encoder(_group_key, _SUBSCRIPTION_METADATA),
        MemberSubscription: _encoder(_member_key, _MEMBER, _member_value),
        MemberSubscriptionDeleted: _encoder(_member_key, _MEMBER),
        TargetAssignmentEpoch: _encoder(_group_key, _TARGET_EPOCH, _target_epoch_value),
        TargetAssignmentEpochDeleted: _encoder(_group_key, _TARGET_EPOCH),
        TargetAssignment: _encoder(_member_key, _TARGET, _target_value),
        TargetAssignmentDeleted: _encoder(_member_key, _TARGET),
        CurrentAssignment: _encoder(_member_key, _CURRENT, _current_value),
        CurrentAssignmentDeleted: _encoder(_member_key, _CURRENT),
        ResolvedRegex: _encoder(_regex_key, _REGEX, _regex_value),
        ResolvedRegexDeleted: _encoder(_regex_key, _REGEX),
    }
)

# --- bytes to records ------------------------------------------------------------------------------------------


def _group_of(raw: bytes) -> GroupId:
    return GroupId(decode_versioned(ConsumerGroupKey, raw).group_id)


def _member_of(raw: bytes) -> tuple[GroupId, MemberId]:
    key = decode_versioned(ConsumerGroupMemberKey, raw)
    return GroupId(key.group_id), MemberId(key.member_id)


def _read_epoch(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id = _group_of(key)
    if raw is None:
        return ConsumerGroupDeleted(group_id)
    value = decode_versioned(ConsumerGroupMetadataValue, raw)
    return ConsumerGroupEpoch(group_id, value.epoch, value.metadata_hash)


def _read_subscription_metadata(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id = _group_of(key)
    return SubscriptionMetadataDeleted(group_id) if raw is None else SubscriptionMetadata(group_id)


def _read_member(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id, member_id = _member_of(key)
    if raw is None:
        return MemberSubscriptionDeleted(group_id, member_id)
    value = decode_versioned(ConsumerGroupMemberMetadataValue, raw)
    classic = value.classic_member_metadata
    return MemberSubscription(
        group_id,
        member_id,
        None if value.instance_id is None else InstanceId(value.instance_id),
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(map(TopicName, value.subscribed_topic_names)),
        value.subscribed_topic_regex,
        value.rebalance_timeout_ms,
        value.server_assignor,
        None
        if classic is None or not classic.supported_protocols
        else ClassicMember(
            classic.session_timeout_ms,
            tuple(Assignor(protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
    )


def _read_target_epoch(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id = _group_of(key)
    if raw is None:
        return TargetAssignmentEpochDeleted(group_id)
    value = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, raw)
    return TargetAssignmentEpoch(group_id, value.assignment_epoch, value.assignment_timestamp)


def _read_target(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id, member_id = _member_of(key)
    if raw is None:
        return TargetAssignmentDeleted(group_id, member_id)
    value = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, raw)
    return TargetAssignment(group_id, member_id, _of_wire(value.topic_partitions))


def _read_current(key: bytes, raw: bytes | None) -> ConsumerRecord:
    group_id, member_id = _member_of(key)
    if raw is None:
        return CurrentAssignmentDeleted(group_id, member_id)
    value = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, raw)
    return CurrentAssignment(
        group_id,
        member_id,
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.UNKNOWN),
        _of_wire(value.assigned_partitions),
        _of_wire(value.partitions_pending_revocation),
    )


def _read_regex(key: bytes, raw: bytes | None) -> ConsumerRecord:
    decoded = decode_versioned(ConsumerGroupRegularExpressionKey, key)
    group_id = GroupId(decoded.group_id)
    if raw is None:
        return ResolvedRegexDeleted(group_id, decoded.regular_expression)
    value = decode_versioned(ConsumerGroupRegularExpressionValue, raw)
    return ResolvedRegex(
        group_id,
        decoded.regular_expression,
        frozenset(map(TopicName, value.topics)),
        value.version,
        value.timestamp,
    )


_STATES: Final = {state.value: state for state in MemberState}


def _of_wire(partitions: list[TopicPartitions]) -> Partitions:
    if not partitions:
        return NO_PARTITIONS
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in partitions}


DECODERS: Final[Decoders] = MappingProxyType(
    {
        _EPOCH: _read_epoch,
        _SUBSCRIPTION_METADATA: _read_subscription_metadata,
        _MEMBER: _read_member,
        _TARGET_EPOCH: _read_target_epoch,
        _TARGET: _read_target,
        _CURRENT: _read_current,
        _REGEX: _read_regex,
    }
)
