"""UnregisterBroker (v0): forget a broker, also one that is alive, as Kafka does."""

from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Its partitions are led by others, where others are in sync."""
    try:
        await controller.unregister_broker(request.broker_id)
    except OttlaError as refused:
        return UnregisterBrokerResponse(error_code=refused.code, error_message=str(refused))
    return UnregisterBrokerResponse(error_message=None)
