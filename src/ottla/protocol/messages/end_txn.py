"""EndTxn: commit or abort a transaction (KIP-98).

2  PRODUCER_FENCED
3  flexible
4  TRANSACTION_ABORTABLE (KIP-890)
5  the epoch grows with every transaction; the response carries the new id and epoch (KIP-890)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message, since


@message(ApiKey.END_TXN, versions=(0, 5), flexible=3)
class EndTxnRequest(Message):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


@message(ApiKey.END_TXN, versions=(0, 5), flexible=3)
class EndTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
