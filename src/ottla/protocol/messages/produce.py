"""Produce: append record batches to partitions.

With `acks` 0 there is no answer at all. Versions before 3 carry the old record formats; brokers advertise 0 upwards
all the same, because of a bug in librdkafka, and refuse them when used.

     3  transactional id; record batches v2
     5  log start offset in the answer
     7  zstd may be used (KIP-110)
     8  which records were at fault, and why (KIP-467)
     9  flexible
    10  the new leader and its address in the answer (KIP-951)
    11  TRANSACTION_ABORTABLE (KIP-890)
    12  adds the partitions to the transaction by itself (KIP-890)
    13  topic ids instead of names (KIP-516)
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32, Int64, Records
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.PRODUCE, versions=(3, 13), flexible=9)
class ProduceRequest(Message):
    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class TopicProduceData(Struct):
    name: str = since(until=12, default="", ignorable=True)
    topic_id: UUID = since(13, default=NULL_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@struct
class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


@message(ApiKey.PRODUCE, versions=(3, 13), flexible=9)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = since(10, tag=0, default_factory=list)


@struct
class TopicProduceResponse(Struct):
    name: str = since(until=12, default="", ignorable=True)
    topic_id: UUID = since(13, default=NULL_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default_factory=list, ignorable=True)
    error_message: str | None = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = since(10, tag=0, default=None, optional=True)


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: str | None = None


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class NodeEndpoint(Struct):
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
