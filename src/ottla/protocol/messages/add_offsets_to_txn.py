"""AddOffsetsToTxn: a transaction is about to commit offsets of a group (KIP-98).

2  PRODUCER_FENCED
3  flexible
4  TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
