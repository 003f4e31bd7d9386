"""BrokerHeartbeat (v0-v2): a broker is alive, wants to lead, or to stop (KIP-631)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    """Raises as `QuorumController.heartbeat`."""
    return await controller.heartbeat(request)
