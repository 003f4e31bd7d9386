"""Requests to the groups of one partition, and their replies. PURE.

The class of a request names its reply. Values are as on the wire, without the differences between
versions: where an older client must be treated differently, a flag controls it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.classic.states import GroupState
from ottla.groups.consumer.events import ConsumerEvent
from ottla.groups.share.events import ShareEvent
from ottla.groups.streams.events import StreamsEvent
from ottla.ids import (
    ZERO_TOPIC_ID,
    GroupId,
    InstanceId,
    MemberId,
    PartitionId,
    ProducerIdAndEpoch,
    TopicId,
    TopicName,
)

NO_MEMBER = MemberId("")
NO_GENERATION = -1


class Assignor(NamedTuple):
    """One way of dividing the partitions that a member supports ("range", "cooperative-sticky"), with its data for
    the leader in that way's own format."""

    name: str
    metadata: bytes


# --- membership ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Join(Request["Joined"]):
    """JoinGroup. Answered with `Joined`, when the rebalance it takes part in is complete."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[Assignor, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str = ""
    requires_member_id: bool = True
    """The client can be sent back to join again under an id given to it (KIP-394, JoinGroup v4)."""
    may_skip_assignment: bool = True
    """The client understands that it leads but need not assign (KIP-814, JoinGroup v9)."""


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: MemberId
    instance_id: InstanceId | None
    metadata: bytes


class Joined(NamedTuple):
    """The reply to `Join`."""

    error: ErrorCode
    member_id: MemberId
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """All members, for the leader; empty for the others."""
    skip_assignment: bool = False


@dataclass(slots=True, eq=False)
class Sync(Request["Synced"]):
    """SyncGroup. Answered with `Synced`, when the leader's assignments are committed."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[MemberId, bytes] | None = None
    """From the leader: what each member gets."""


class Synced(NamedTuple):
    """The reply to `Sync`."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Heartbeat(Request[ErrorCode]):
    """Answered with an `ErrorCode`: REBALANCE_IN_PROGRESS asks the member to join again."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    generation: int


class LeavingMember(NamedTuple):
    """By member id; or, from an administrator, by instance id alone."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    reason: str = ""


@dataclass(slots=True, eq=False)
class Leave(Request["Left"]):
    """LeaveGroup, for several members at once (KIP-345). Answered with `Left`."""

    group_id: GroupId
    members: tuple[LeavingMember, ...]


class Left(NamedTuple):
    """The reply to `Leave`."""

    errors: tuple[ErrorCode, ...]
    """One per member, in the request's order."""


# --- offsets ---------------------------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """One offset of an offset commit; `leader_epoch` -1: not sent."""

    topic: TopicName
    partition: PartitionId
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(slots=True, eq=False)
class CommitOffsets(Request["OffsetsCommitted"]):
    """OffsetCommit and TxnOffsetCommit. Answered with `OffsetsCommitted`."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    """How long to keep them, as in versions 2 to 4; -1: the broker's setting."""
    knows_member_epochs: bool = True
    """From OffsetCommit v9 on: a group that does not exist, and a stale member epoch, have errors of their own."""
    producer: ProducerIdAndEpoch | None = None
    """The offsets are part of its transaction, and in force when that is committed."""


class OffsetsCommitted(NamedTuple):
    """The reply to `CommitOffsets`."""

    errors: tuple[ErrorCode, ...]
    """One per offset, in the request's order."""


class TopicPartitions(NamedTuple):
    """Partitions of a topic in requests for offsets."""

    topic: TopicName
    partitions: tuple[PartitionId, ...]
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(slots=True, eq=False)
class FetchOffsets(Request["OffsetsFetched"]):
    """OffsetFetch of one group; `topics` None asks for all. Answered with `OffsetsFetched`."""

    group_id: GroupId
    topics: tuple[TopicPartitions, ...] | None
    require_stable: bool = False
    member_id: MemberId | None = None
    member_epoch: int = -1
    """The requester's epoch, from OffsetFetch v9 on: a member of a consumer group learns if it no longer is one
    (KIP-848).
    """


class FetchedOffset(NamedTuple):
    """`offset` -1: nothing is committed."""

    partition: PartitionId
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """A topic's committed offsets."""

    topic: TopicName
    offsets: tuple[FetchedOffset, ...]


class OffsetsFetched(NamedTuple):
    """The reply to `FetchOffsets`."""

    topics: tuple[FetchedTopic, ...]
    error: ErrorCode = ErrorCode.NONE
    """The error of the group as a whole: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""


@dataclass(slots=True, eq=False)
class DeleteOffsets(Request["OffsetsDeleted"]):
    """OffsetDelete (KIP-496). Answered with `OffsetsDeleted`."""

    group_id: GroupId
    topics: tuple[TopicPartitions, ...]


class OffsetsDeleted(NamedTuple):
    """The reply to `DeleteOffsets`."""

    error: ErrorCode
    topics: tuple[tuple[TopicName, ErrorCode], ...] = ()
    """One per topic, in the request's order; the same for all of a topic's partitions."""


@dataclass(slots=True, eq=False)
class ForgetTopics(Request[tuple[GroupId, ...]]):
    """These topics have been deleted: so are the offsets in them. Answered with the groups that are still to be looked
    at, since there may be too many for one turn of the event loop: the sender asks again for these."""

    topics: Mapping[TopicName, TopicId]
    group_ids: tuple[GroupId, ...] | None = None
    """None: all groups."""


# --- groups ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ListGroups(Request["tuple[GroupListing, ...]"]):
    """Answered with a tuple of `GroupListing`; empty filters let everything pass."""

    states: frozenset[str] = frozenset()
    """In lower case."""
    kinds: frozenset[str] = frozenset()
    """In lower case: "classic", "consumer", "share"."""


class GroupListing(NamedTuple):
    """A group in ListGroups."""

    group_id: GroupId
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(slots=True, eq=False)
class DescribeGroups(Request["tuple[GroupDescription, ...]"]):
    """Answered with a tuple of `GroupDescription`, in the request's order."""

    group_ids: tuple[GroupId, ...]


class MemberDescription(NamedTuple):
    """A member in DescribeGroups; `metadata` and `assignment` are opaque to the broker."""

    member_id: MemberId
    instance_id: InstanceId | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


class GroupDescription(NamedTuple):
    """A group in DescribeGroups."""

    group_id: GroupId
    state: GroupState
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[MemberDescription, ...] = ()
    is_of_another_kind: bool = False
    """There is a group of this name, but it is no classic one."""


@dataclass(slots=True, eq=False)
class DeleteGroups(Request[tuple[ErrorCode, ...]]):
    """Answered with a tuple of `ErrorCode`, in the request's order."""

    group_ids: tuple[GroupId, ...]


GroupEvent: TypeAlias = (
    ConsumerEvent
    | ShareEvent
    | StreamsEvent
    | Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | ForgetTopics
    | ListGroups
    | DescribeGroups
    | DeleteGroups
)
