"""UpdateMetadata (v5-v8): the controller sends the brokers, and the leaders of partitions.

For clusters with ZooKeeper.
"""

from typing import TYPE_CHECKING

from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership


async def handle(
    membership: "Membership | None", request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH, and BadFrame."""
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
    membership.controller_connection.check(request.controller_epoch, context.connection_id)
    membership.metadata.update(request)
    return UpdateMetadataResponse()
