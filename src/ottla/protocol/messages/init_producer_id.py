"""InitProducerId: a producer id and epoch for an idempotent or transactional producer (KIP-98).

2  flexible
3  a producer may name the id and epoch it had, to go on after INVALID_PRODUCER_EPOCH (KIP-360)
4  PRODUCER_FENCED
5  TRANSACTION_ABORTABLE (KIP-890)
6  two-phase commit (KIP-939); not stable in Kafka 4.3, which does not advertise it
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message, since


@message(ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2)
class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable_2pc: bool = since(6, default=False)
    keep_prepared_txn: bool = since(6, default=False)


@message(ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2)
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
