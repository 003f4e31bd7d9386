"""UpdateMetadata (v5-v8): the controller says which brokers there are, and who leads what.

Of clusters with ZooKeeper.
"""

from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.server.context import RequestContext


async def handle(request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH."""
    membership = context.broker.cluster
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
    membership.metadata.update(request)
    return UpdateMetadataResponse()
