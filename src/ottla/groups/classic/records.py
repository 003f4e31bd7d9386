"""Classic groups in `__consumer_offsets`, in Kafka's format. PURE.

    key     int16 2 | group
    value   int16 version | the group as its last rebalance left it, or none: the group is gone

Source: GroupMetadata among the coordinator records of Kafka 4.3.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ottla.groups.record_types import Decoders, Encoders
from ottla.ids import GroupId, InstanceId, MemberId
from ottla.protocol.primitives import Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned


@message(versions=(0, 2))
class GroupMetadataKey(Message):
    """Key of a classic group's record in `__consumer_offsets`."""

    group: str


@message(versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    """A classic group at the end of a rebalance, with the assignment of every member."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: list[GroupMetadataValueMember]


@struct
class GroupMetadataValueMember(Struct):
    """A member in `GroupMetadataValue`; timeouts in milliseconds."""

    member_id: str
    group_instance_id: str | None = since(3, default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


MEMBER_OVERHEAD_BYTES: Final = 24
"""Six lengths and two timeouts."""


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
        """Size of the record's value: exact but for names of members and clients that are not ASCII."""
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
    """The tombstone of a classic group."""

    group_id: GroupId


ClassicRecord: TypeAlias = GroupMetadata | GroupDeleted

_GROUP_KEY: Final = 2

_GROUP_VALUE: Final = 3
"""What Kafka 4.3 writes: the last version without tagged fields, which brokers since 2.1 read."""


def _key(group_id: GroupId) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), _GROUP_KEY)


def _encode_deletion(record: GroupDeleted) -> tuple[bytes, None]:
    return _key(record.group_id), None


def _encode_group(record: GroupMetadata) -> tuple[bytes, bytes]:
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
    return _key(record.group_id), encode_versioned(value, _GROUP_VALUE)


def _decode(raw_key: bytes, raw: bytes | None) -> ClassicRecord:
    group_id = GroupId(decode_versioned(GroupMetadataKey, raw_key).group)
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


ENCODERS: Final[Encoders] = MappingProxyType({GroupMetadata: _encode_group, GroupDeleted: _encode_deletion})
DECODERS: Final[Decoders] = MappingProxyType({_GROUP_KEY: _decode})
