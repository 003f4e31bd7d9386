"""InitProducerId (v0-v5): an id for an idempotent producer (KIP-98).

A transactional id is refused with UNSUPPORTED_VERSION, which ends a producer's `init_transactions` with an error at
once: there is no transaction coordinator that it could be told to look for.
"""

from typing import Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.server.context import RequestContext

NONE: Final = -1


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """A producer without a transactional id gets a new id at epoch 0, whatever it had before."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refusal(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    producer_id = await context.broker.metadata.next_producer_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
