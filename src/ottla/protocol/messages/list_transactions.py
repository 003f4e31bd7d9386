"""ListTransactions: the transactions that a broker coordinates (KIP-664).

1  filter by duration (KIP-994)
2  filter by a pattern for the id (KIP-1152)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Message):
    state_filters: list[str]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: str | None = since(2, default=None)


@message(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0)
class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]


@struct
class TransactionState(Struct):
    transactional_id: str
    producer_id: Int64
    transaction_state: str
