"""InitProducerId (v0-v5): an id and an epoch for an idempotent (KIP-98) or transactional producer (KIP-360).

Clients before version 4 do not know PRODUCER_FENCED, and get INVALID_PRODUCER_EPOCH.
"""

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import ProducerIdAndEpoch
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.server.context import RequestContext
from ottla.server.producer_errors import fenced_error
from ottla.transactions.events import Granted

if TYPE_CHECKING:
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.metadata.view import MetadataView

NONE: Final = -1
FENCED_SINCE: Final = 4


async def handle(
    metadata: "MetadataView",
    transactions: "TransactionCoordinator",
    request: InitProducerIdRequest,
    context: RequestContext,
) -> InitProducerIdResponse:
    """A producer without a transactional id gets a new id at epoch 0, whatever it had before."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _answer(Granted(ErrorCode.INVALID_REQUEST), context)
    if request.transactional_id is None:
        return _answer(Granted(ErrorCode.NONE, await metadata.next_producer_id(), 0), context)
    expected = None
    if request.producer_id != NONE:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        granted = await transactions.init_producer(request.transactional_id, request.transaction_timeout_ms, expected)
    except OttlaError as error:
        granted = Granted(error.code)
    return _answer(granted, context)


def _answer(granted: Granted, context: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=fenced_error(granted.error, context.api_version >= FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.producer_epoch,
    )
