"""StopReplica (v3-v4): the controller says which replicas this broker is to let go.

Of clusters with ZooKeeper.
"""

from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.server.context import RequestContext


async def handle(request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH for the whole request."""
    membership = context.broker.cluster
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    async with membership.being_told:
        membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
        outcomes = membership.roles.stop(request)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=partition, error_code=code)
            for (topic, partition), code in outcomes.items()
        ]
    )
