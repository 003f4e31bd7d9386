"""DescribeTransactions (v0): state, producer, timeout and partitions of transactions (KIP-664)."""

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.slices import Slices

NOTHING: Final = 0
"""What Kafka fills in where there is an error instead."""


async def handle(
    transactions: "TransactionCoordinator",
    slices: "Slices",
    request: DescribeTransactionsRequest,
    context: RequestContext,
) -> DescribeTransactionsResponse:
    """Each id on its own."""
    return DescribeTransactionsResponse(
        transaction_states=await slices.each(
            partial(_describe, transactions, context=context), request.transactional_ids
        )
    )


async def _describe(
    transactions: "TransactionCoordinator", transactional_id: str, context: RequestContext
) -> TransactionState:
    try:
        found = await transactions.describe(transactional_id)
    except OttlaError as error:
        return TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=NOTHING,
            transaction_start_time_ms=NOTHING,
            producer_id=NOTHING,
            producer_epoch=NOTHING,
            topics=[],
        )
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )
