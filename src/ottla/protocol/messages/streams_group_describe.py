"""StreamsGroupDescribe: state, epochs, topology and members of streams groups (KIP-1071)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 0), flexible=0)
class StreamsGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool


@message(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]


@struct
class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str
    group_state: str
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = None
    members: list[Member]
    authorized_operations: Int32 = -0x8000_0000


@struct
class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology] | None = None


@struct
class Subtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@struct
class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


@struct
class Member(Struct):
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


@struct
class Endpoint(Struct):
    host: str
    port: UInt16


@struct
class KeyValue(Struct):
    key: str
    value: str


@struct
class TaskOffset(Struct):
    subtopology_id: str
    partition: Int32
    offset: Int64


@struct
class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class TaskIds(Struct):
    subtopology_id: str
    partitions: list[Int32]
