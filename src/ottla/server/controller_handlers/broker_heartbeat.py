"""BrokerHeartbeat (v0-v2): a broker is alive, wants to lead, or to stop (KIP-631)."""

from typing import TYPE_CHECKING

from ottla.ids import BrokerId
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.ended_brokers import EndedBrokers
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", ended: "EndedBrokers", request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    """Raises as `QuorumController.heartbeat`."""
    answer = await controller.heartbeat(request)
    ended.note_heartbeat(context.connection_id, BrokerId(request.broker_id), request.broker_epoch)
    return answer
