"""Requests and replies of share groups (KIP-932). PURE.

As in `ottla.groups.events`, values are as on the wire. The reply names the work
that the machine cannot do itself: share partitions whose state the share coordinator is to initialize or delete.
The coordinator has that done, and reports the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.consumer.events import NO_PARTITIONS, AssignedTopic, Partitions
from ottla.ids import GroupId, MemberId, PartitionId, TopicId, TopicName

JOINING = 0
LEAVING = -1
"""Member epochs of heartbeats that stand for no epoch."""


class ToInitialize(NamedTuple):
    """Share partitions that are to start (over), with their start offset; -1: by `share.auto.offset.reset`."""

    state_epoch: int
    start_offsets: Mapping[TopicId, Mapping[int, int]]
    anew: frozenset[TopicId]
    """Topics whose old state is deleted. State of other topics stays: two heartbeats may initialize it
    concurrently, and records delivered in between must not be delivered again."""

    @property
    def partitions(self) -> Partitions:
        return {topic_id: frozenset(offsets) for topic_id, offsets in self.start_offsets.items()}


# --- membership ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ShareHeartbeat(Request["ShareBeat"]):
    """ShareGroupHeartbeat. What is None is as before. Answered with `ShareBeat`."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[TopicName] | None


@dataclass(slots=True, eq=False)
class RefreshShareMember(Request["ShareBeat"]):
    """Answer a heartbeat anew: meanwhile there may be more to assign. Answered with `ShareBeat`."""

    group_id: GroupId
    member_id: MemberId
    known_epoch: int
    """With which the member comes again if the answer gets lost: that of its heartbeat."""


class ShareBeat(NamedTuple):
    """The answer; with an error, only `message` counts."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: MemberId | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """None: as before."""
    initialize: ToInitialize | None = None
    """Not for the client: answered with `ShareStateInitialized` or `ShareStateFailed`."""


@dataclass(slots=True, eq=False)
class ShareStateInitialized(Request[None]):
    """The share coordinator keeps the state of these share partitions from now on. Answered with None."""

    group_id: GroupId
    partitions: Partitions


@dataclass(slots=True, eq=False)
class ShareStateFailed(Request[None]):
    """The initialization failed; the next heartbeat retries it. Answered with None."""

    group_id: GroupId
    partitions: Partitions


# --- groups ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class DescribeShareGroups(Request["tuple[ShareGroupDescription, ...]"]):
    """ShareGroupDescribe. Answered with a tuple of `ShareGroupDescription`, in the request's order."""

    group_ids: tuple[GroupId, ...]


class ShareMemberDescription(NamedTuple):
    """A member in ShareGroupDescribe (KIP-932)."""

    member_id: MemberId
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[TopicName, ...]
    assignment: tuple[AssignedTopic, ...]


class ShareGroupDescription(NamedTuple):
    """GROUP_ID_NOT_FOUND, with a message: there is no such group, or it is of another kind."""

    error: ErrorCode
    message: str | None
    group_id: GroupId
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ShareMemberDescription, ...] = ()


@dataclass(slots=True, eq=False)
class DeleteShareGroup(Request["ShareDeletion"]):
    """Begin to delete a group. Answered with `ShareDeletion`: once the state is forgotten, the group can go."""

    group_id: GroupId


class ShareDeletion(NamedTuple):
    """`partitions`: share partitions whose state is to be forgotten. A group that is no share group has none."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: Partitions = NO_PARTITIONS
    refused: Mapping[TopicName, str] = {}
    """UNKNOWN_TOPIC_OR_PARTITION, with these words."""


# --- offsets ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class FindSharePartitions(Request[Partitions]):
    """Answered with `Partitions`: those that the share coordinator keeps state for; no group, no partitions."""

    group_id: GroupId


class ShareOffset(NamedTuple):
    """The start offset that a share partition gets."""

    topic: TopicName
    partition: PartitionId
    start_offset: int


@dataclass(slots=True, eq=False)
class AlterShareOffsets(Request["ShareOffsetsAltered"]):
    """AlterShareGroupOffsets, of a group without members. Answered with `ShareOffsetsAltered`."""

    group_id: GroupId
    offsets: tuple[ShareOffset, ...]


class ShareOffsetsAltered(NamedTuple):
    """NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or one error for each offset, in the request's order."""

    error: ErrorCode
    message: str | None = None
    errors: tuple[ErrorCode, ...] = ()
    initialize: ToInitialize | None = None


@dataclass(slots=True, eq=False)
class DeleteShareOffsets(Request[ShareDeletion]):
    """Begin DeleteShareGroupOffsets, of a group without members. Answered with `ShareDeletion`."""

    group_id: GroupId
    topics: tuple[TopicName, ...]


@dataclass(slots=True, eq=False)
class ShareOffsetsDeleted(Request[None]):
    """The share coordinator has forgotten these topics. Answered with None."""

    group_id: GroupId
    topic_ids: frozenset[TopicId]


@dataclass(slots=True, eq=False)
class ForgetShareTopics(Request[None]):
    """These topics are gone, and their share partitions with them. Answered with None."""

    topic_ids: frozenset[TopicId]


ShareEvent: TypeAlias = (
    ShareHeartbeat
    | RefreshShareMember
    | ShareStateInitialized
    | ShareStateFailed
    | DescribeShareGroups
    | DeleteShareGroup
    | FindSharePartitions
    | AlterShareOffsets
    | DeleteShareOffsets
    | ShareOffsetsDeleted
    | ForgetShareTopics
)
