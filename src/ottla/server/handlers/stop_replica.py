"""StopReplica (v3-v4): the controller makes this broker stop replicas.

For clusters with ZooKeeper.
"""

from typing import TYPE_CHECKING

from ottla.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership


async def handle(
    membership: "Membership | None", request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH for the whole request, and BadFrame."""
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    async with membership.controller_request_lock:
        membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
        membership.controller_connection.check(request.controller_epoch, context.connection_id)
        outcomes = await membership.roles.stop(request)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=partition, error_code=code)
            for (topic, partition), code in outcomes.items()
        ]
    )
