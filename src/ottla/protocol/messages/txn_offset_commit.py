"""TxnOffsetCommit: offsets of a group, to become visible with the transaction (KIP-98).

2  leader epochs (KIP-320)
3  flexible; member and generation, for fencing (KIP-447)
4  TRANSACTION_ABORTABLE (KIP-890)
5  adds the group to the transaction by itself (KIP-890)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest(Message):
    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: str = since(3, default="")
    group_instance_id: str | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: str | None


@message(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0
