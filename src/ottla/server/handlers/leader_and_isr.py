"""LeaderAndIsr (v5-v7): the controller assigns this broker its replicas, with their leaders.

For clusters with ZooKeeper, in the versions of brokers that know topic ids.
"""

from typing import TYPE_CHECKING

from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership


async def handle(
    cluster: "Membership | None", request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH for the whole request, and BadFrame."""
    assert cluster is not None  # routed in clusters only
    await cluster.metadata.until_registered()
    cluster.metadata.check_controller(request.controller_epoch, request.broker_epoch)
    cluster.controller_connection.check(request.controller_epoch, context.connection_id)
    was_fenced = cluster.leadership_lease.is_fenced
    with cluster.roles.expecting(request):
        brought = cluster.roles.topics_brought(request)
        if brought and cluster.roles.only_follows_new(request, cluster.metadata.broker_id):
            await cluster.metadata.learn_settings_soon(brought)
        elif brought:
            await cluster.metadata.learn_settings(brought)
        async with cluster.controller_request_lock:
            # Another controller may have spoken while settings were read.
            cluster.metadata.check_controller(request.controller_epoch, request.broker_epoch)
            cluster.controller_connection.check(request.controller_epoch, context.connection_id)
            outcomes = await cluster.roles.take(request)
    if was_fenced:  # not by a controller that has spoken before
        cluster.leadership_lease.unfence()
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=outcomes[topic.topic_id, state.partition_index],
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
    )
