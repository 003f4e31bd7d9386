"""StreamsGroupHeartbeat (v0): a client of a streams application (KIP-1071) joins its group, is given tasks, leaves.

Refused here is what is wrong whatever the group, in Kafka's words; the rest is up to the group. As in Kafka 4.3, there
are no static members, regular expressions for source topics, warm-up tasks or offsets of tasks yet. Other than in
Kafka, the interval until the next heartbeat is shorter than the setting while tasks move (ADR 10).
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.cluster.controller import check_topic_name
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ApiError, ErrorCode, InvalidRequest, InvalidTopic, OttlaError
from ottla.groups.streams.events import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    EndpointPartitions,
    EndpointTopic,
    StreamsBeat,
    StreamsHeartbeat,
)
from ottla.groups.streams.members import Endpoint as MemberEndpoint
from ottla.groups.streams.tasks import Tasks, TaskSets
from ottla.groups.streams.topology import CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.ids import GroupId, MemberId, ProcessId, SubtopologyId, TopicName
from ottla.protocol.messages import streams_group_heartbeat as wire
from ottla.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
    TopicPartition,
)
from ottla.server.context import Deferred, RequestContext, when_done
from ottla.server.streams_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.streams_groups import StreamsGroupCoordinator
    from ottla.metadata.view import MetadataView


def handle(
    config: "BrokerConfig",
    metadata: "MetadataView",
    streams_groups: "StreamsGroupCoordinator",
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
) -> StreamsGroupHeartbeatResponse | Deferred[StreamsGroupHeartbeatResponse]:
    if not are_offered(config, metadata):
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    try:
        if request.topology is not None:
            _check_topics(request.topology)
        _check_features(request)
        _check(request)
    except OttlaError as refused:
        return _refused(refused.code, str(refused))
    endpoint = request.user_endpoint
    reply = streams_groups.heartbeat(
        StreamsHeartbeat(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            member_epoch=request.member_epoch,
            endpoint_epoch=request.endpoint_information_epoch,
            rack_id=request.rack_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",  # as Java prints an address, and genuine tools show it
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topology=None if request.topology is None else _topology(request.topology),
            owned=_owned(request),
            process_id=None if request.process_id is None else ProcessId(request.process_id),
            user_endpoint=None if endpoint is None else MemberEndpoint(endpoint.host, endpoint.port),
            client_tags=None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags},
            shutdown=request.shutdown_application,
        ),
        None if context.access is None else context.access.may_create,
    )
    return when_done(reply, partial(_response, streams_groups))


# --- refusals ---


def _check_topics(topology: wire.Topology) -> None:
    """Raises `ApiError` STREAMS_INVALID_TOPOLOGY for names that no application may use."""
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        names.update(dict.fromkeys((*each.source_topics, *each.repartition_sink_topics)))
        names.update((topic.name, None) for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(TopicName(name))
    except InvalidTopic:
        return False
    return True


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises `InvalidRequest` for what the protocol has room for, and Kafka 4.3 does not do."""
    if request.instance_id is not None:
        raise InvalidRequest("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidRequest("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidRequest("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidRequest("WarmupTasks are not supported yet.")
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise InvalidRequest("Regular expressions for source topics are not supported yet.")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises `InvalidRequest`, `ApiError`."""
    for value, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise InvalidRequest(f"{name} can't be empty.")
    kinds = (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    )
    epoch = request.member_epoch
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        for tasks, name in kinds:
            if tasks is None or tasks:
                raise InvalidRequest(f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise InvalidRequest("Topology must be non-null when (re-)joining.")
        _check_changelogs(request.topology)
    elif epoch == LEAVING_FOR_A_WHILE:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE:
        raise InvalidRequest(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if len({tasks is None for tasks, _ in kinds}) > 1:
        raise InvalidRequest("If one task-type is non-null, all must be non-null.")
    if epoch != JOINING and request.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")


def _check_changelogs(topology: wire.Topology) -> None:
    if topology.epoch < 0:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, "Topology epoch must be non-negative.")
    for each in topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions != 0:
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


# --- from the wire ---


def _topology(topology: wire.Topology) -> Topology:
    return Topology(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(subtopology: wire.Subtopology) -> Subtopology:
    return Subtopology(
        SubtopologyId(subtopology.subtopology_id),
        tuple(map(TopicName, subtopology.source_topics)),
        tuple(subtopology.source_topic_regex),
        tuple(map(_internal_topic, subtopology.state_changelog_topics)),
        tuple(map(TopicName, subtopology.repartition_sink_topics)),
        tuple(map(_internal_topic, subtopology.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in subtopology.copartition_groups
        ),
    )


def _internal_topic(topic: TopicInfo) -> InternalTopicInfo:
    configs = tuple((config.key, config.value) for config in topic.topic_configs)
    return InternalTopicInfo(TopicName(topic.name), topic.partitions, topic.replication_factor, configs)


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSets | None:
    """The tasks that the member reports; None: it does not."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return TaskSets(_tasks(request.active_tasks), _tasks(request.standby_tasks), _tasks(request.warmup_tasks))


def _tasks(wire_tasks: Sequence[TaskIds]) -> Tasks:
    tasks: dict[SubtopologyId, set[int]] = {}
    for each in wire_tasks:
        if each.partitions:
            tasks.setdefault(SubtopologyId(each.subtopology_id), set()).update(each.partitions)
    return {subtopology: frozenset(partitions) for subtopology, partitions in tasks.items()}


# --- to the wire ---


def _response(streams_groups: "StreamsGroupCoordinator", beat: StreamsBeat) -> StreamsGroupHeartbeatResponse:
    if beat.error:
        return _refused(beat.error, beat.message)
    tasks, endpoints = beat.tasks, beat.endpoints
    return StreamsGroupHeartbeatResponse(
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        status=[
            Status(status_code=status.code, status_detail=status.detail)
            for status in streams_groups.with_failures(beat)
        ],
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=beat.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else list(map(_endpoint, endpoints)),
    )


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=sorted(partitions))
        for subtopology, partitions in sorted(tasks.items())
    ]


def _endpoint(endpoint: EndpointPartitions) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint.endpoint.host, port=endpoint.endpoint.port),
        active_partitions=_partitions(endpoint.active),
        standby_partitions=_partitions(endpoint.standby),
    )


def _partitions(topics: Sequence[EndpointTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic=each.topic, partitions=list(each.partitions)) for each in topics]


def _refused(error: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error, error_message=message, status=[])
