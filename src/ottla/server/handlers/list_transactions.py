"""ListTransactions (v0-v2): the transactional ids that this broker coordinates (KIP-664), by state, producer, how long
their transaction has taken (KIP-994) and a pattern for the id (KIP-1152)."""

from typing import TYPE_CHECKING

from ottla.coordinators.transaction_coordinator import unknown_states
from ottla.errors import OttlaError
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator


async def handle(
    transactions: "TransactionCoordinator", request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    try:
        listings = await transactions.list_transactions(
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            longer_than_ms=request.duration_filter,
            id_pattern=request.transactional_id_pattern,
        )
    except OttlaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])
    return ListTransactionsResponse(
        unknown_state_filters=unknown_states(request.state_filters),
        transaction_states=[
            TransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transactional_id, transaction in listings
        ],
    )
