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

from collections.abc import Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.groups.events import Assignor
from ottla.groups.record_types import (
    GROUP_KEY,
    MEMBER_KEY,
    Decoders,
    Encoders,
    KeyFormat,
    RecordType,
    decoders,
    encoders,
    target_epoch_type,
)
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName
from ottla.protocol.primitives import Int8, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(16, 16))
class ConsumerGroupRegularExpressionKey(Message):
    """Key of a resolved regular expression, record type 16 of `__consumer_offsets`."""

    group_id: str
    regular_expression: str


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of a group and the hash of its topics."""

    epoch: Int32
    metadata_hash: Int64 = since(0, tag=0, default=0, ignorable=True)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    """A member and its subscription."""

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
    """What a member of the classic protocol sent when it joined; the timeout is in milliseconds."""

    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = since(default_factory=list)


@struct
class ClassicProtocol(Struct):
    """A protocol that a classic member supports, with its subscription."""

    name: str
    metadata: bytes


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartitions]


@message(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The present assignment of a member; `state` is a `MemberState`."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[PartitionsWithEpochs]
    partitions_pending_revocation: list[PartitionsWithEpochs]


@struct
class TopicPartitions(Struct):
    """Partitions of a topic."""

    topic_id: UUID
    partitions: list[Int32]


@struct
class PartitionsWithEpochs(Struct):
    """Partitions of a topic, and for each the member epoch in which it was assigned: offsets committed in that epoch or
    a later one are taken by Kafka 4.3. Older ones pass over the epochs, and Kafka 4.3 complains where there are none.
    """

    topic_id: UUID
    partitions: list[Int32]
    assignment_epochs: list[Int32] = since(tag=0, default_factory=list)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that matched, the version of the metadata then, and the time in milliseconds."""

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
    """A group enters an epoch, with this hash of its topics."""

    group_id: GroupId
    epoch: int
    metadata_hash: int


class ConsumerGroupDeleted(NamedTuple):
    """The tombstone of a group."""

    group_id: GroupId


class SubscriptionMetadata(NamedTuple):
    """Written by brokers before 4.1: superseded by the hash, and to be deleted."""

    group_id: GroupId


class SubscriptionMetadataDeleted(NamedTuple):
    """The tombstone of a `SubscriptionMetadata`."""

    group_id: GroupId


class MemberSubscription(NamedTuple):
    """A member joins, or changes its subscription."""

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
    """The tombstone of a member."""

    group_id: GroupId
    member_id: MemberId


class TargetAssignmentEpoch(NamedTuple):
    """The epoch for which the target assignment was computed."""

    group_id: GroupId
    epoch: int
    computed_ms: int = 0
    """When the assignment was computed; 0 if that is not known (Kafka writes it since 4.3)."""


class TargetAssignmentEpochDeleted(NamedTuple):
    """The tombstone of a `TargetAssignmentEpoch`."""

    group_id: GroupId


class TargetAssignment(NamedTuple):
    """A member's part of the target assignment."""

    group_id: GroupId
    member_id: MemberId
    partitions: Partitions


class TargetAssignmentDeleted(NamedTuple):
    """The tombstone of a `TargetAssignment`."""

    group_id: GroupId
    member_id: MemberId


class CurrentAssignment(NamedTuple):
    """A member's epoch and its present assignment."""

    group_id: GroupId
    member_id: MemberId
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    pending_revocation: Partitions


class CurrentAssignmentDeleted(NamedTuple):
    """The tombstone of a `CurrentAssignment`."""

    group_id: GroupId
    member_id: MemberId


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression, at a version of the metadata."""

    group_id: GroupId
    regex: str
    topics: frozenset[TopicName]
    version: int
    timestamp_ms: int


class ResolvedRegexDeleted(NamedTuple):
    """The tombstone of a `ResolvedRegex`."""

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

_REGEX_KEY: Final = KeyFormat(ConsumerGroupRegularExpressionKey, "group_id", "regular_expression")

# --- values of records -----------------------------------------------------------------------------------------------


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


def _target_value(record: TargetAssignment) -> Message:
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_to_wire(record.partitions))


def _current_value(record: CurrentAssignment) -> Message:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=record.state,
        assigned_partitions=_with_epochs(record.assigned, record.epoch),
        partitions_pending_revocation=_with_epochs(record.pending_revocation, record.epoch),
    )


def _regex_value(record: ResolvedRegex) -> Message:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(record.topics), version=record.version, timestamp=record.timestamp_ms
    )


def _to_wire(partitions: Partitions) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(indexes)) for topic, indexes in partitions.items()]


def _with_epochs(partitions: Partitions, epoch: int) -> list[PartitionsWithEpochs]:
    """The present epoch for all of them, since a commit of any other is refused here."""
    return [
        PartitionsWithEpochs(topic_id=topic, partitions=sorted(indexes), assignment_epochs=[epoch] * len(indexes))
        for topic, indexes in partitions.items()
    ]


# --- records of values -----------------------------------------------------------------------------------------------


def _read_epoch(group_id: GroupId, value: ConsumerGroupMetadataValue) -> ConsumerRecord:
    return ConsumerGroupEpoch(group_id, value.epoch, value.metadata_hash)


def _read_member(group_id: GroupId, member_id: MemberId, value: ConsumerGroupMemberMetadataValue) -> ConsumerRecord:
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


def _read_target(
    group_id: GroupId, member_id: MemberId, value: ConsumerGroupTargetAssignmentMemberValue
) -> ConsumerRecord:
    return TargetAssignment(group_id, member_id, _of_wire(value.topic_partitions))


def _read_current(
    group_id: GroupId, member_id: MemberId, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerRecord:
    return CurrentAssignment(
        group_id,
        member_id,
        value.member_epoch,
        value.previous_member_epoch,
        _STATES.get(value.state, MemberState.UNKNOWN),
        _of_wire(value.assigned_partitions),
        _of_wire(value.partitions_pending_revocation),
    )


def _read_regex(group_id: GroupId, regex: str, value: ConsumerGroupRegularExpressionValue) -> ConsumerRecord:
    return ResolvedRegex(
        group_id,
        regex,
        frozenset(map(TopicName, value.topics)),
        value.version,
        value.timestamp,
    )


_STATES: Final = {state.value: state for state in MemberState}


def _of_wire(partitions: Sequence[TopicPartitions | PartitionsWithEpochs]) -> Partitions:
    if not partitions:
        return NO_PARTITIONS
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in partitions}


_TYPES: Final = (
    RecordType(
        3, GROUP_KEY, ConsumerGroupEpoch, ConsumerGroupDeleted, ConsumerGroupMetadataValue, _epoch_value, _read_epoch
    ),
    RecordType(
        5,
        MEMBER_KEY,
        MemberSubscription,
        MemberSubscriptionDeleted,
        ConsumerGroupMemberMetadataValue,
        _member_value,
        _read_member,
    ),
    target_epoch_type(6, TargetAssignmentEpoch, TargetAssignmentEpochDeleted),
    RecordType(
        7,
        MEMBER_KEY,
        TargetAssignment,
        TargetAssignmentDeleted,
        ConsumerGroupTargetAssignmentMemberValue,
        _target_value,
        _read_target,
    ),
    RecordType(
        8,
        MEMBER_KEY,
        CurrentAssignment,
        CurrentAssignmentDeleted,
        ConsumerGroupCurrentMemberAssignmentValue,
        _current_value,
        _read_current,
    ),
    RecordType(
        16,
        _REGEX_KEY,
        ResolvedRegex,
        ResolvedRegexDeleted,
        ConsumerGroupRegularExpressionValue,
        _regex_value,
        _read_regex,
    ),
)
_SUBSCRIPTION_METADATA: Final = 4


def _encode_subscription_metadata_deleted(record: SubscriptionMetadataDeleted) -> tuple[bytes, None]:
    return GROUP_KEY.encode(_SUBSCRIPTION_METADATA, record), None


def _decode_subscription_metadata(key: bytes, value: bytes | None) -> ConsumerRecord:
    (group_id,) = GROUP_KEY.decode(key)
    return SubscriptionMetadataDeleted(group_id) if value is None else SubscriptionMetadata(group_id)


ENCODERS: Final[Encoders] = MappingProxyType(
    {**encoders(_TYPES), SubscriptionMetadataDeleted: _encode_subscription_metadata_deleted}
)
DECODERS: Final[Decoders] = MappingProxyType(
    {**decoders(_TYPES), _SUBSCRIPTION_METADATA: _decode_subscription_metadata}
)
