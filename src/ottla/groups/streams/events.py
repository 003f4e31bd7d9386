"""What can be asked of streams groups (KIP-1071), and what is answered. PURE.

As in `ottla.groups.events`, values are as on the wire. The
machine creates no topics: it names the missing ones in its answer, and the coordinator has them created.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.groups.streams.configured import Status
from ottla.groups.streams.members import Endpoint
from ottla.groups.streams.tasks import TaskSets
from ottla.groups.streams.topology import InternalTopicInfo, Topology
from ottla.ids import GroupId, InstanceId, MemberId, ProcessId, SubtopologyId, TopicName

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Member epochs of heartbeats that stand for no epoch. Kafka 4.3 has no static members of streams groups yet."""


@dataclass(slots=True, eq=False)
class StreamsHeartbeat(Request["StreamsBeat"]):
    """StreamsGroupHeartbeat. What is None (or -1) is as before. Answered with `StreamsBeat`.

    The request has been checked: whatever is wrong without knowing the group is refused before.
    """

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    endpoint_epoch: int
    """The last `StreamsBeat.endpoint_epoch` that the member has seen."""
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: TaskSets | None = None
    process_id: ProcessId | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    shutdown: bool = False
    """The whole application is to stop."""


class EndpointTopic(NamedTuple):
    """Partitions of a topic that the member behind an endpoint has."""

    topic: TopicName
    partitions: tuple[int, ...]


class EndpointPartitions(NamedTuple):
    """What can be queried at the end point of one member."""

    endpoint: Endpoint
    active: tuple[EndpointTopic, ...]
    standby: tuple[EndpointTopic, ...]


class StreamsBeat(NamedTuple):
    """The answer; with an error, only `message` counts."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: MemberId = MemberId("")
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[Status, ...] = ()
    tasks: TaskSets | None = None
    """None: as before."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    create: tuple[InternalTopicInfo, ...] = ()
    """Not for the client: topics that the application needs and that are not there."""


@dataclass(slots=True, eq=False)
class DescribeStreamsGroups(Request["tuple[StreamsGroupDescription, ...]"]):
    """StreamsGroupDescribe. Answered with a tuple of `StreamsGroupDescription`, in the request's order."""

    group_ids: tuple[GroupId, ...]


class SubtopologyDescription(NamedTuple):
    """A subtopology in StreamsGroupDescribe (KIP-1071)."""

    subtopology_id: SubtopologyId
    source_topics: tuple[TopicName, ...]
    repartition_sink_topics: tuple[TopicName, ...]
    repartition_source_topics: tuple[InternalTopicInfo, ...]
    state_changelog_topics: tuple[InternalTopicInfo, ...]


class TopologyDescription(NamedTuple):
    """A group's topology in StreamsGroupDescribe."""

    epoch: int
    subtopologies: tuple[SubtopologyDescription, ...]


class StreamsMemberDescription(NamedTuple):
    """A member in StreamsGroupDescribe."""

    member_id: MemberId
    member_epoch: int
    instance_id: InstanceId | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: ProcessId
    user_endpoint: Endpoint | None
    client_tags: Mapping[str, str]
    assignment: TaskSets
    target: TaskSets


class StreamsGroupDescription(NamedTuple):
    """GROUP_ID_NOT_FOUND, with a message: there is no such group, or it is of another kind."""

    error: ErrorCode
    message: str | None
    group_id: GroupId
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: TopologyDescription | None = None
    members: tuple[StreamsMemberDescription, ...] = ()


StreamsEvent: TypeAlias = StreamsHeartbeat | DescribeStreamsGroups
