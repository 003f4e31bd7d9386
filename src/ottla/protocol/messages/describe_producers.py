"""DescribeProducers: the producers that a partition remembers, and their open transactions (KIP-664)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message):
    topics: list[TopicRequest]


@struct
class TopicRequest(Struct):
    name: str
    partition_indexes: list[Int32]


@message(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0)
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse]


@struct
class TopicResponse(Struct):
    name: str
    partitions: list[PartitionResponse]


@struct
class PartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState]


@struct
class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1
