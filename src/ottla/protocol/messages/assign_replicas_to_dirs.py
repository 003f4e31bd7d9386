"""AssignReplicasToDirs: a broker reports which of its log directories hold its replicas (KIP-858)."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: list[DirectoryData]


@struct
class DirectoryData(Struct):
    id: UUID
    topics: list[TopicData]


@struct
class TopicData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32


@message(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[ResponseDirectoryData]


@struct
class ResponseDirectoryData(Struct):
    id: UUID
    topics: list[ResponseTopicData]


@struct
class ResponseTopicData(Struct):
    topic_id: UUID
    partitions: list[ResponsePartitionData]


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16
