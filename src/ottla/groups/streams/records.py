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
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ottla.groups.record_types import Decoders, Encoders
from ottla.groups.streams.members import Endpoint, MemberState
from ottla.groups.streams.tasks import NO_EPOCHS, AssignmentEpochs, TaskId, Tasks, TaskSets
from ottla.groups.streams.topology import CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.ids import GroupId, InstanceId, MemberId, ProcessId, SubtopologyId, TopicName
from ottla.protocol.primitives import Int8, Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(17, 23))
class StreamsGroupKey(Message):
    """The key of a record about a group as a whole; the version in front gives the type of record."""

    group_id: str


@message(versions=(19, 22))
class StreamsGroupMemberKey(Message):
    """The key of a record about a member; the version in front gives the type of record."""

    group_id: str
    member_id: str


@message(versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = since(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = since(tag=1, default=None)


@message(versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
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
class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = since(tag=0, default=0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message(versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
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
    epoch: Int32
    subtopologies: list[WireSubtopology]


@struct
class KeyValue(Struct):
    key: str
    value: str


@struct
class WireEndpoint(Struct):
    host: str
    port: UInt16


@struct
class TaskIds(Struct):
    subtopology_id: str
    partitions: list[Int32]


@struct
class TaskIdsWithEpochs(Struct):
    subtopology_id: str
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = since(tag=0, default=None)
    """The epochs of active tasks, one for each partition; brokers before 4.3 wrote none."""


@struct
class WireSubtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[WireCopartitionGroup]


@struct
class WireCopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


# --- in here ---------------------------------------------------------------------------------------------------


class StreamsMemberMetadata(NamedTuple):
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
    group_id: GroupId
    member_id: MemberId


class StreamsGroupEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    metadata_hash: int
    """The hash of the topics that the topology requires, as they were at this epoch."""
    validated_topology_epoch: int
    """That of the topology, if it fits the topics; -1: it does not."""
    assignment_configs: Mapping[str, str]


class StreamsGroupDeleted(NamedTuple):
    group_id: GroupId


class StreamsTargetEpoch(NamedTuple):
    group_id: GroupId
    epoch: int
    timestamp_ms: int
    """When it was worked out; 0: not known."""


class StreamsTargetEpochDeleted(NamedTuple):
    group_id: GroupId


class StreamsTarget(NamedTuple):
    group_id: GroupId
    member_id: MemberId
    tasks: TaskSets


class StreamsTargetDeleted(NamedTuple):
    group_id: GroupId
    member_id: MemberId


class StreamsAssignment(NamedTuple):
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
    group_id: GroupId
    member_id: MemberId


class StreamsTopology(NamedTuple):
    group_id: GroupId
    topology: Topology


class StreamsTopologyDeleted(NamedTuple):
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

_GROUP_KEY: Final = 17
_MEMBER_KEY: Final = 19
_TARGET_EPOCH_KEY: Final = 20
_TARGET_KEY: Final = 21
_ASSIGNMENT_KEY: Final = 22
_TOPOLOGY_KEY: Final = 23
_VALUE: Final = 0


# --- writing ---------------------------------------------------------------------------------------------------


def _group_key(kind: int, group_id: GroupId) -> bytes:
    return encode_versioned(StreamsGroupKey(group_id=group_id), kind)


def _member_key(kind: int, group_id: GroupId, member_id: MemberId) -> bytes:
    return encode_versioned(StreamsGroupMemberKey(group_id=group_id, member_id=member_id), kind)


def _wire_pairs(pairs: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in sorted(pairs.items())]


def _encode_member(record: StreamsMemberMetadata) -> tuple[bytes, bytes]:
    endpoint = record.user_endpoint
    value = StreamsGroupMemberMetadataValue(
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
    return _member_key(_MEMBER_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_epoch(record: StreamsGroupEpoch) -> tuple[bytes, bytes]:
    value = StreamsGroupMetadataValue(
        epoch=record.epoch,
        metadata_hash=record.metadata_hash,
        validated_topology_epoch=record.validated_topology_epoch,
        last_assignment_configs=_wire_pairs(record.assignment_configs),
    )
    return _group_key(_GROUP_KEY, record.group_id), encode_versioned(value, _VALUE)


def _encode_target_epoch(record: StreamsTargetEpoch) -> tuple[bytes, bytes]:
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
    )
    return _group_key(_TARGET_EPOCH_KEY, record.group_id), encode_versioned(value, _VALUE)


def _encode_target(record: StreamsTarget) -> tuple[bytes, bytes]:
    active, standby, warmup = (
        [TaskIds(subtopology_id=key, partitions=sorted(partitions)) for key, partitions in sorted(tasks.items())]
        for tasks in record.tasks
    )
    value = StreamsGroupTargetAssignmentMemberValue(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
    return _member_key(_TARGET_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_assignment(record: StreamsAssignment) -> tuple[bytes, bytes]:
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

    value = StreamsGroupCurrentMemberAssignmentValue(
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
    return _member_key(_ASSIGNMENT_KEY, record.group_id, record.member_id), encode_versioned(value, _VALUE)


def _encode_topology(record: StreamsTopology) -> tuple[bytes, bytes]:
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

    value = StreamsGroupTopologyValue(
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
    return _group_key(_TOPOLOGY_KEY, record.group_id), encode_versioned(value, _VALUE)


# --- reading ---------------------------------------------------------------------------------------------------


def _read_group_key(raw: bytes) -> GroupId:
    return GroupId(decode_versioned(StreamsGroupKey, raw).group_id)


def _read_member_key(raw: bytes) -> tuple[GroupId, MemberId]:
    key = decode_versioned(StreamsGroupMemberKey, raw)
    return GroupId(key.group_id), MemberId(key.member_id)


def _decode_member(key: bytes, raw: bytes | None) -> StreamsMemberMetadata | StreamsMemberDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return StreamsMemberDeleted(group_id, member_id)
    value = decode_versioned(StreamsGroupMemberMetadataValue, raw)
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


def _decode_epoch(key: bytes, raw: bytes | None) -> StreamsGroupEpoch | StreamsGroupDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return StreamsGroupDeleted(group_id)
    value = decode_versioned(StreamsGroupMetadataValue, raw)
    configs = {config.key: config.value for config in value.last_assignment_configs or ()}
    return StreamsGroupEpoch(group_id, value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)


def _decode_target_epoch(key: bytes, raw: bytes | None) -> StreamsTargetEpoch | StreamsTargetEpochDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return StreamsTargetEpochDeleted(group_id)
    value = decode_versioned(StreamsGroupTargetAssignmentMetadataValue, raw)
    return StreamsTargetEpoch(group_id, value.assignment_epoch, value.assignment_timestamp)


def _decode_target(key: bytes, raw: bytes | None) -> StreamsTarget | StreamsTargetDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return StreamsTargetDeleted(group_id, member_id)
    value = decode_versioned(StreamsGroupTargetAssignmentMemberValue, raw)
    return StreamsTarget(
        group_id,
        member_id,
        TaskSets(_tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)),
    )


def _decode_assignment(key: bytes, raw: bytes | None) -> StreamsAssignment | StreamsAssignmentDeleted:
    group_id, member_id = _read_member_key(key)
    if raw is None:
        return StreamsAssignmentDeleted(group_id, member_id)
    value = decode_versioned(StreamsGroupCurrentMemberAssignmentValue, raw)
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


def _decode_topology(key: bytes, raw: bytes | None) -> StreamsTopology | StreamsTopologyDeleted:
    group_id = _read_group_key(key)
    if raw is None:
        return StreamsTopologyDeleted(group_id)
    value = decode_versioned(StreamsGroupTopologyValue, raw)
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


ENCODERS: Final[Encoders] = MappingProxyType(
    {
        StreamsMemberMetadata: _encode_member,
        StreamsMemberDeleted: lambda record: (_member_key(_MEMBER_KEY, *record), None),
        StreamsGroupEpoch: _encode_epoch,
        StreamsGroupDeleted: lambda record: (_group_key(_GROUP_KEY, *record), None),
        StreamsTargetEpoch: _encode_target_epoch,
        StreamsTargetEpochDeleted: lambda record: (_group_key(_TARGET_EPOCH_KEY, *record), None),
        StreamsTarget: _encode_target,
        StreamsTargetDeleted: lambda record: (_member_key(_TARGET_KEY, *record), None),
        StreamsAssignment: _encode_assignment,
        StreamsAssignmentDeleted: lambda record: (_member_key(_ASSIGNMENT_KEY, *record), None),
        StreamsTopology: _encode_topology,
        StreamsTopologyDeleted: lambda record: (_group_key(_TOPOLOGY_KEY, *record), None),
    }
)
DECODERS: Final[Decoders] = MappingProxyType(
    {
        _MEMBER_KEY: _decode_member,
        _GROUP_KEY: _decode_epoch,
        _TARGET_EPOCH_KEY: _decode_target_epoch,
        _TARGET_KEY: _decode_target,
        _ASSIGNMENT_KEY: _decode_assignment,
        _TOPOLOGY_KEY: _decode_topology,
    }
)
