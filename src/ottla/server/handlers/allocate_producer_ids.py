"""AllocateProducerIds (v0): a broker asks the controller for a block of producer ids (KIP-730)."""

from typing import TYPE_CHECKING

from ottla.ids import BrokerId
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership


async def handle(
    membership: "Membership | None", request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    """Raises NOT_CONTROLLER, STALE_BROKER_EPOCH, and what `allocate_producer_ids` does."""
    assert membership is not None  # routed in clusters only
    block = await membership.active_controller().allocate_producer_ids(
        BrokerId(request.broker_id), request.broker_epoch
    )
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last + 1 - block.first)
