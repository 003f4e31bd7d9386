"""StreamsGroupHeartbeat: join, stay in and leave a streams group (KIP-1071).

The request carries the application's topology when it joins, and the tasks that the member has; the answer, the tasks
that it is to have, what is wrong with the topology, and which partitions are at which end point. Null means "as
before". Epoch 0 joins, -1 leaves, -2 leaves for a while as a static member.
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64, UInt16
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


@struct
class Topology(Struct):
    epoch: Int32
    subtopologies: list[Subtopology]


@struct
class Subtopology(Struct):
    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@struct
class CopartitionGroup(Struct):
    """Indexes into the lists of the subtopology: topics that must have the same number of partitions."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class TopicInfo(Struct):
    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


@struct
class KeyValue(Struct):
    key: str
    value: str


@struct
class Endpoint(Struct):
    host: str
    port: UInt16


@struct
class TaskOffset(Struct):
    subtopology_id: str
    partition: Int32
    offset: Int64


@struct
class TaskIds(Struct):
    subtopology_id: str
    partitions: list[Int32]


@message(ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[Status] | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


@struct
class Status(Struct):
    status_code: Int8
    status_detail: str


@struct
class EndpointToPartitions(Struct):
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@struct
class TopicPartition(Struct):
    topic: str
    partitions: list[Int32]
