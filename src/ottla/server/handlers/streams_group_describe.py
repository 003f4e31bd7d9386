"""StreamsGroupDescribe (v0): state, epochs, topology and members of streams groups (KIP-1071).

Members report no offsets of their tasks yet, as in Kafka 4.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.streams.events import (
    StreamsGroupDescription,
    StreamsMemberDescription,
    SubtopologyDescription,
    TopologyDescription,
)
from ottla.groups.streams.tasks import Tasks, TaskSets
from ottla.groups.streams.topology import InternalTopicInfo
from ottla.ids import GroupId
from ottla.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from ottla.server.context import RequestContext
from ottla.server.handlers.describe_groups import allow_all
from ottla.server.streams_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.streams_groups import StreamsGroupCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    config: "BrokerConfig"
    metadata: "MetadataView"
    streams_groups: "StreamsGroupCoordinator"
    slices: "Slices"


async def handle(
    parts: Parts, request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    groups = await parts.slices.each(partial(_describe, parts, context=context), map(GroupId, request.group_ids))
    if request.include_authorized_operations:
        allow_all(groups)
    return StreamsGroupDescribeResponse(groups=groups)


async def _describe(parts: Parts, group_id: GroupId, context: RequestContext) -> DescribedGroup:
    if not are_offered(parts.config, parts.metadata):
        return _refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        described = await parts.streams_groups.describe(group_id)
    except OttlaError as error:
        return _refused(group_id, error.code)
    if described.error:
        return _refused(group_id, described.error, described.message)
    return _described(described)


def _described(group: StreamsGroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _topology(group.topology),
        members=[_member(member) for member in group.members],
    )


def _topology(topology: TopologyDescription) -> Topology:
    return Topology(epoch=topology.epoch, subtopologies=[_subtopology(each) for each in topology.subtopologies])


def _subtopology(subtopology: SubtopologyDescription) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=list(subtopology.source_topics),
        repartition_sink_topics=list(subtopology.repartition_sink_topics),
        state_changelog_topics=[_topic(topic) for topic in subtopology.state_changelog_topics],
        repartition_source_topics=[_topic(topic) for topic in subtopology.repartition_source_topics],
    )


def _topic(topic: InternalTopicInfo) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_pairs(topic.configs),
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in pairs]


def _member(member: StreamsMemberDescription) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_pairs(member.client_tags.items()),
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
        is_classic=False,
    )


def _assignment(tasks: TaskSets) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=sorted(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]


def _refused(group_id: GroupId, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )
