"""EndTxn (v0-v5): commit or abort a transaction (KIP-98); answered when that is decided for good.

Since version 5 the answer says with which producer id and epoch the producer goes on (KIP-890).
"""

from typing import Final

from ottla.errors import OttlaError
from ottla.ids import ProducerIdAndEpoch
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.server.context import RequestContext
from ottla.server.producer_errors import told_fenced
from ottla.transactions.events import Granted

FENCED_SINCE: Final = 2
EPOCH_PER_TRANSACTION_SINCE: Final = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    version = context.api_version
    try:
        granted = await context.broker.transactions.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            committed=request.committed,
            client_version=2 if version >= EPOCH_PER_TRANSACTION_SINCE else 0,
        )
    except OttlaError as error:
        granted = Granted(error.code)
    return EndTxnResponse(
        error_code=told_fenced(granted.error, version >= FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.producer_epoch,
    )
