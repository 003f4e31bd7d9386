"""AlterPartition: a leader asks the controller to change the in-sync replicas (KIP-497).

2  topic ids; INELIGIBLE_REPLICA and NEW_LEADER_ELECTED (KIP-841)
3  replicas with their broker epochs (KIP-903)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.ALTER_PARTITION, versions=(2, 3), flexible=0)
class AlterPartitionRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[TopicData]


@struct
class TopicData(Struct):
    topic_id: UUID
    partitions: list[PartitionData]


@struct
class PartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = since(until=2, default_factory=list)
    new_isr_with_epochs: list[BrokerState] = since(3, default_factory=list)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


@struct
class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = -1


@message(ApiKey.ALTER_PARTITION, versions=(2, 3), flexible=0)
class AlterPartitionResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData]


@struct
class ResponseTopicData(Struct):
    topic_id: UUID
    partitions: list[ResponsePartitionData]


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32
