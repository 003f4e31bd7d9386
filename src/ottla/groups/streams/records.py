"""Streams groups in `__consumer_offsets`, in Kafka's format. PURE.

    key 17  the group's epoch, and what it was assigned with      group
        19  a member, as it described itself                      group, member
        20  the epoch of the target assignment                    group
        21  the tasks that a member is to have (target)           group, member
        22  the tasks that a member has                           group, member
        23  the topology                                          group

No value is a tombstone. Values are version 0 of their format throughout. Source: StreamsGroup* among the coordinator
records of Kafka 4.3 (KIP-1071).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ottla.groups.record_types import (
    GROUP_KEY,
    MEMBER_KEY,
    RecordType,
    decoders,
    encoders,
    target_epoch_type,
)
from ottla.groups.streams.members import Endpoint, MemberState
from ottla.groups.streams.tasks import NO_EPOCHS, AssignmentEpochs, TaskId, Tasks, TaskSets
from ottla.groups.streams.topology import CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.ids import GroupId, InstanceId, MemberId, ProcessId, SubtopologyId, TopicName
from ottla.protocol.primitives import Int8, Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    """The epoch of a group, the hash of its topics, and the topology that was checked against them."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = since(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = since(tag=1, default=None)


@message(versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
    """A member, its process and its endpoint; the timeout is in milliseconds."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: str
    user_endpoint: WireEndpoint | None = None
    client_tags: list[KeyValue]


@message(versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    """The target assignment of a member."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message(versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The present assignment of a member; `state` is a `MemberState`."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[TaskIdsWithEpochs]
    standby_tasks: list[TaskIdsWithEpochs]
    warmup_tasks: list[TaskIdsWithEpochs]
    active_tasks_pending_revocation: list[TaskIdsWithEpochs]
    standby_tasks_pending_revocation: list[TaskIdsWithEpochs]
    warmup_tasks_pending_revocation: list[TaskIdsWithEpochs]


@message(versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue(Message):
    """The topology that members sent."""

    epoch: Int32
    subtopologies: list[WireSubtopology]


@struct
class KeyValue(Struct):
    """A setting of a topic, or a tag of a client."""

    key: str
    value: str


@struct
class WireEndpoint(Struct):
    """The address at which a member answers interactive queries."""

    host: str
    port: UInt16


@struct
class TaskIds(Struct):
    """Tasks of a subtopology, by partition."""

    subtopology_id: str
    partitions: list[Int32]


@struct
class TaskIdsWithEpochs(Struct):
    """Tasks of a subtopology, with the epochs in which they were assigned."""

    subtopology_id: str
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = since(tag=0, default=None)
    """The epochs of active tasks, one for each partition; brokers before 4.3 wrote none."""


@struct
class WireSubtopology(Struct):
    """Topics that a subtopology reads, and internal topics that it needs."""

    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[WireCopartitionGroup]


@struct
class WireCopartitionGroup(Struct):
    """Topics with equal numbers of partitions, as positions in the lists of a `WireSubtopology`."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class TopicInfo(Struct):
    """An internal topic; 0 partitions or replicas: as the broker decides."""

    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


# --- in here ---------------------------------------------------------------------------------------------------


class StreamsMemberMetadata(NamedTuple):
    """A member joins, or changes what it sent."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: ProcessId
    user_endpoint: Endpoint | None
    client_tags: Mapping[str, str]


class StreamsMemberDeleted(NamedTuple):
    """The tombstone of a member."""

    group_id: GroupId
    member_id: MemberId


class StreamsGroupEpoch(NamedTuple):
    """A group enters an epoch."""

    group_id: GroupId
    epoch: int
    metadata_hash: int
    """The hash of the topics that the topology requires, as they were at this epoch."""
    validated_topology_epoch: int
    """That of the topology, if it fits the topics; -1: it does not."""
    assignment_configs: Mapping[str, str]


class StreamsGroupDeleted(NamedTuple):
    """The tombstone of a group."""

    group_id: GroupId


class StreamsTargetEpoch(NamedTuple):
    """The epoch for which the target assignment was computed."""

    group_id: GroupId
    epoch: int
    timestamp_ms: int
    """When it was worked out; 0: not known."""


class StreamsTargetEpochDeleted(NamedTuple):
    """The tombstone of a `StreamsTargetEpoch`."""

    group_id: GroupId


class StreamsTarget(NamedTuple):
    """A member's part of the target assignment."""

    group_id: GroupId
    member_id: MemberId
    tasks: TaskSets


class StreamsTargetDeleted(NamedTuple):
    """The tombstone of a `StreamsTarget`."""

    group_id: GroupId
    member_id: MemberId


class StreamsAssignment(NamedTuple):
    """A member's epoch and its present tasks."""

    group_id: GroupId
    member_id: MemberId
    epoch: int
    previous_epoch: int
    """With which the member comes again if the answer with the new one is lost."""
    state: MemberState
    assigned: TaskSets
    pending_revocation: TaskSets
    assignment_epochs: AssignmentEpochs = NO_EPOCHS


class StreamsAssignmentDeleted(NamedTuple):
    """The tombstone of a `StreamsAssignment`."""

    group_id: GroupId
    member_id: MemberId


class StreamsTopology(NamedTuple):
    """A group's topology, as its first member of this epoch sent it."""

    group_id: GroupId
    topology: Topology


class StreamsTopologyDeleted(NamedTuple):
    """The tombstone of a topology."""

    group_id: GroupId


StreamsRecord: TypeAlias = (
    StreamsMemberMetadata
    | StreamsMemberDeleted
    | StreamsGroupEpoch
    | StreamsGroupDeleted
    | StreamsTargetEpoch
    | StreamsTargetEpochDeleted
    | StreamsTarget
    | StreamsTargetDeleted
    | StreamsAssignment
    | StreamsAssignmentDeleted
    | StreamsTopology
    | StreamsTopologyDeleted
)


# --- values of records -----------------------------------------------------------------------------------------------


def _wire_pairs(pairs: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(pairs.items())]


def _write_member(record: StreamsMemberMetadata) -> Message:
    endpoint = record.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        topology_epoch=record.topology_epoch,
        process_id=record.process_id,
        user_endpoint=None if endpoint is None else WireEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=_wire_pairs(record.client_tags),
    )


def _write_epoch(record: StreamsGroupEpoch) -> Message:
    return StreamsGroupMetadataValue(
        epoch=record.epoch,
        metadata_hash=record.metadata_hash,
        validated_topology_epoch=record.validated_topology_epoch,
        last_assignment_configs=_wire_pairs(record.assignment_configs),
    )


def _write_target(record: StreamsTarget) -> Message:
    active, standby, warmup = (
        [TaskIds(subtopology_id=key, partitions=sorted(partitions)) for key, partitions in sorted(tasks.items())]
        for tasks in record.tasks
    )
    return StreamsGroupTargetAssignmentMemberValue(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)


def _write_assignment(record: StreamsAssignment) -> Message:
    def wire(tasks: Tasks, epochs: AssignmentEpochs | None = None) -> list[TaskIdsWithEpochs]:
        return [
            TaskIdsWithEpochs(
                subtopology_id=key,
                partitions=sorted(partitions),
                assignment_epochs=(
                    None if epochs is None else [epochs[TaskId(key, index)] for index in sorted(partitions)]
                ),
            )
            for key, partitions in sorted(tasks.items())
        ]

    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=record.epoch,
        previous_member_epoch=record.previous_epoch,
        state=record.state,
        active_tasks=wire(record.assigned.active, record.assignment_epochs),
        standby_tasks=wire(record.assigned.standby),
        warmup_tasks=wire(record.assigned.warmup),
        active_tasks_pending_revocation=wire(record.pending_revocation.active, record.assignment_epochs),
        standby_tasks_pending_revocation=wire(record.pending_revocation.standby),
        warmup_tasks_pending_revocation=wire(record.pending_revocation.warmup),
    )


def _write_topology(record: StreamsTopology) -> Message:
    def topics(infos: Sequence[InternalTopicInfo]) -> list[TopicInfo]:
        return [
            TopicInfo(
                name=info.name,
                partitions=info.partitions,
                replication_factor=info.replication_factor,
                topic_configs=[KeyValue(key=key, value=value) for key, value in info.configs],
            )
            for info in infos
        ]

    return StreamsGroupTopologyValue(
        epoch=record.topology.epoch,
        subtopologies=[
            WireSubtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=topics(each.state_changelog_topics),
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=topics(each.repartition_source_topics),
                copartition_groups=[
                    WireCopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in record.topology.subtopologies
        ],
    )


# --- records of values -----------------------------------------------------------------------------------------------


def _read_member(
    group_id: GroupId, member_id: MemberId, value: StreamsGroupMemberMetadataValue
) -> StreamsMemberMetadata:
    endpoint = value.user_endpoint
    return StreamsMemberMetadata(
        group_id,
        member_id,
        None if value.instance_id is None else InstanceId(value.instance_id),
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        ProcessId(value.process_id),
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        {tag.key: tag.value for tag in value.client_tags},
    )


def _read_epoch(group_id: GroupId, value: StreamsGroupMetadataValue) -> StreamsGroupEpoch:
    configs = {config.key: config.value for config in value.last_assignment_configs or ()}
    return StreamsGroupEpoch(group_id, value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)


def _read_target(
    group_id: GroupId, member_id: MemberId, value: StreamsGroupTargetAssignmentMemberValue
) -> StreamsTarget:
    return StreamsTarget(
        group_id,
        member_id,
        TaskSets(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),
    )


def _read_assignment(
    group_id: GroupId, member_id: MemberId, value: StreamsGroupCurrentMemberAssignmentValue
) -> StreamsAssignment:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return StreamsAssignment(
        group_id,
        member_id,
        value.member_epoch,
        value.previous_member_epoch,
        state,
        TaskSets(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),
        TaskSets(
            _tasks(value.active_tasks_pending_revocation),
            _tasks(value.standby_tasks_pending_revocation),
            _tasks(value.warmup_tasks_pending_revocation),
        ),
        {
            TaskId(SubtopologyId(each.subtopology_id), partition): epoch
            for each in (*value.active_tasks, *value.active_tasks_pending_revocation)
            for partition, epoch in zip(each.partitions, _epochs(each, value.member_epoch), strict=True)
        },
    )


def _epochs(tasks: TaskIdsWithEpochs, member_epoch: int) -> Sequence[int]:
    """When each was assigned; if the log does not say, at the member's epoch."""
    epochs = tasks.assignment_epochs
    if epochs is not None and len(epochs) == len(tasks.partitions):
        return epochs
    return [member_epoch] * len(tasks.partitions)


def _read_topology(group_id: GroupId, value: StreamsGroupTopologyValue) -> StreamsTopology:
    return StreamsTopology(group_id, Topology(value.epoch, tuple(map(_subtopology, value.subtopologies))))


def _subtopology(value: WireSubtopology) -> Subtopology:
    def topics(infos: Sequence[TopicInfo]) -> tuple[InternalTopicInfo, ...]:
        return tuple(
            InternalTopicInfo(
                TopicName(info.name),
                info.partitions,
                info.replication_factor,
                tuple((config.key, config.value) for config in info.topic_configs),
            )
            for info in infos
        )

    return Subtopology(
        SubtopologyId(value.subtopology_id),
        tuple(map(TopicName, value.source_topics)),
        tuple(value.source_topic_regex),
        topics(value.state_changelog_topics),
        tuple(map(TopicName, value.repartition_sink_topics)),
        topics(value.repartition_source_topics),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in value.copartition_groups
        ),
    )


def _tasks(wire: Sequence[TaskIds | TaskIdsWithEpochs]) -> Tasks:
    return {SubtopologyId(each.subtopology_id): frozenset(each.partitions) for each in wire}


_TYPES: Final = (
    RecordType(
        17, GROUP_KEY, StreamsGroupEpoch, StreamsGroupDeleted, StreamsGroupMetadataValue, _write_epoch, _read_epoch
    ),
    RecordType(
        19,
        MEMBER_KEY,
        StreamsMemberMetadata,
        StreamsMemberDeleted,
        StreamsGroupMemberMetadataValue,
        _write_member,
        _read_member,
    ),
    target_epoch_type(20, StreamsTargetEpoch, StreamsTargetEpochDeleted),
    RecordType(
        21,
        MEMBER_KEY,
        StreamsTarget,
        StreamsTargetDeleted,
        StreamsGroupTargetAssignmentMemberValue,
        _write_target,
        _read_target,
    ),
    RecordType(
        22,
        MEMBER_KEY,
        StreamsAssignment,
        StreamsAssignmentDeleted,
        StreamsGroupCurrentMemberAssignmentValue,
        _write_assignment,
        _read_assignment,
    ),
    RecordType(
        23,
        GROUP_KEY,
        StreamsTopology,
        StreamsTopologyDeleted,
        StreamsGroupTopologyValue,
        _write_topology,
        _read_topology,
    ),
)
ENCODERS: Final = encoders(_TYPES)
DECODERS: Final = decoders(_TYPES)
