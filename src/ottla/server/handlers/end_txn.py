"""EndTxn (v0-v5): commit or abort a transaction (KIP-98); answered when that is decided for good.

Since version 5 the response carries the producer id and epoch for the next transaction (KIP-890).
Deviation: late requests of versions before that are kept out of later transactions
(`ottla.server.producer_connections`).
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import ProducerIdAndEpoch
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.server.context import RequestContext
from ottla.server.producer_connections import To
from ottla.server.producer_errors import fenced_error
from ottla.transactions.events import Granted

if TYPE_CHECKING:
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.server.producer_connections import ProducerConnections

FENCED_SINCE: Final = 2
EPOCH_PER_TRANSACTION_SINCE: Final = 5


def handle(
    producer_connections: "ProducerConnections",
    transactions: "TransactionCoordinator",
    request: EndTxnRequest,
    context: RequestContext,
) -> Awaitable[EndTxnResponse]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if context.api_version < EPOCH_PER_TRANSACTION_SINCE:
        producer_connections.refuse_late(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return _end(producer_connections, transactions, request, producer, context)


async def _end(
    producer_connections: "ProducerConnections",
    transactions: "TransactionCoordinator",
    request: EndTxnRequest,
    producer: ProducerIdAndEpoch,
    context: RequestContext,
) -> EndTxnResponse:
    version = context.api_version
    try:
        granted = await transactions.end_transaction(
            request.transactional_id,
            producer,
            committed=request.committed,
            client_version=2 if version >= EPOCH_PER_TRANSACTION_SINCE else 0,
        )
    except OttlaError as error:
        granted = Granted(error.code)
    if granted.error is ErrorCode.NONE and version < EPOCH_PER_TRANSACTION_SINCE:
        producer_connections.accepted(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return EndTxnResponse(
        error_code=fenced_error(granted.error, version >= FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.producer_epoch,
    )
