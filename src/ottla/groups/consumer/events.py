"""Requests and replies of groups whose members the coordinator assigns itself (KIP-848). PURE.

As in `ottla.groups.events`, values are as on the wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.history import Rebalance
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""Member epochs of requests that do not stand for an epoch; the last is a static member's (KIP-345)."""

Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; no topic without partitions."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


# --- membership ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ConsumerHeartbeat(Request["ConsumerBeat"]):
    """ConsumerGroupHeartbeat. Fields that are None (or -1) are unchanged. Answered with `ConsumerBeat`.

    The request has been validated: errors that are visible without the group are refused before.
    """

    group_id: GroupId
    member_id: MemberId
    """Empty: the client is too old to make one (v0), and is given one."""
    member_epoch: int
    instance_id: InstanceId | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[TopicName] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None


class ConsumerBeat(NamedTuple):
    """The answer; with an error, only `message` counts."""

    error: ErrorCode
    message: str | None = None
    member_id: MemberId | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """None: as before."""
    resolve: tuple[str, ...] = ()
    """Internal: regular expressions to be resolved for the group, by a `RegexesResolved`."""


@dataclass(slots=True, eq=False)
class RegexesResolved(Request[None]):
    """What a `ConsumerBeat.resolve` has asked for: all of the topics whose whole name matches. Answered with None."""

    group_id: GroupId
    topics: Mapping[str, frozenset[TopicName]]
    version: int
    """Version of the `TopicsView` they were looked up in."""


@dataclass(slots=True, eq=False)
class TopicsChanged(Request[tuple[GroupId, ...]]):
    """Topics have been made, have grown or are gone; the machine's view of topics shows it. Answered with the groups
    that have not been notified, since there may be too many for one turn of the event loop: the sender goes on with
    these."""

    names: frozenset[TopicName]
    group_ids: tuple[GroupId, ...] | None = None
    """None: all groups."""


# --- groups ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class DescribeConsumerGroups(Request["tuple[ConsumerGroupDescription, ...]"]):
    """ConsumerGroupDescribe. Answered with a tuple of `ConsumerGroupDescription`, in the request's order."""

    group_ids: tuple[GroupId, ...]


class AssignedTopic(NamedTuple):
    """Partitions of one topic in a description of an assignment."""

    topic_id: TopicId
    topic: TopicName
    partitions: tuple[int, ...]


class ConsumerMemberDescription(NamedTuple):
    """A member in ConsumerGroupDescribe (KIP-848)."""

    member_id: MemberId
    instance_id: InstanceId | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[TopicName, ...]
    topic_regex: str | None
    assignment: tuple[AssignedTopic, ...]
    target_assignment: tuple[AssignedTopic, ...]
    is_classic: bool
    """It speaks the classic protocol: the group is on its way from one to the other."""


class ConsumerGroupDescription(NamedTuple):
    """GROUP_ID_NOT_FOUND, with a message: there is no such group, or it is of another kind."""

    error: ErrorCode
    message: str | None
    group_id: GroupId
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberDescription, ...] = ()


@dataclass(slots=True, eq=False)
class DescribeHistory(Request["GroupHistory"]):
    """Why a group of any kind has rebalanced. Answered with `GroupHistory`."""

    group_id: GroupId


class GroupHistory(NamedTuple):
    """GROUP_ID_NOT_FOUND, or the rebalances since this broker coordinates the group, oldest first."""

    error: ErrorCode
    rebalances: tuple[Rebalance, ...] = ()


ConsumerEvent: TypeAlias = (
    ConsumerHeartbeat | RegexesResolved | TopicsChanged | DescribeConsumerGroups | DescribeHistory
)
