"""UnregisterBroker (v0): forget a broker that does not come back.

A broker's registration goes with its session, so there is never anything to remove: a broker that is not alive is
not registered, and a live one is kept. Kafka removes a live one as well, even its only broker, which then
serves no clients.
"""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView


def handle(
    metadata: "MetadataView", request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    number = request.broker_id
    if BrokerId(number) in metadata.image.brokers:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {number} is alive. Stop it: its registration ends with its session.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=f"Broker ID {number} is not currently registered"
    )
