"""WriteTxnMarkers: the transaction coordinator has brokers write the end of transactions (KIP-98). Flexible.

2  the level of `transaction.version` under which the transaction ended (KIP-1228)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@struct
class WritableTxnMarkerTopic(Struct):
    name: str
    partition_indexes: list[Int32]


@message(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult]


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16 = 0
