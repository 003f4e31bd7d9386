"""AddPartitionsToTxn: partitions that a transaction is about to write to (KIP-98).

Clients use up to version 3; since version 4 it is what brokers send to the coordinator, to add or to verify (KIP-890).

    2  PRODUCER_FENCED
    3  flexible
    4  several transactions at once, and verification only
    5  TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction] = since(4, default_factory=list)
    v3_and_below_transactional_id: str = since(until=3, default="")
    v3_and_below_producer_id: Int64 = since(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = since(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(until=3, default_factory=list)


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic]


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str
    partitions: list[Int32]


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(until=3, default_factory=list)


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16
