"""BrokerRegistration (v0-v4): a broker starts, and gets its epoch (KIP-631)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    """Raises as `QuorumController.register_broker`."""
    return BrokerRegistrationResponse(broker_epoch=await controller.register_broker(request))
