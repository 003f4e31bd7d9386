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
    membership: "Membership | None", request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH for the whole request, and BadFrame."""
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
    membership.controller_connection.check(request.controller_epoch, context.connection_id)
    was_fenced = membership.leadership_lease.is_fenced
    with membership.roles.expecting(request):
        brought = membership.roles.topics_brought(request)
        if brought and membership.roles.only_follows_new(request, membership.metadata.broker_id):
            await membership.metadata.learn_settings_soon(brought)
        elif brought:
            await membership.metadata.learn_settings(brought)
        async with membership.controller_request_lock:
            # Another controller may have spoken while settings were read.
            membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
            membership.controller_connection.check(request.controller_epoch, context.connection_id)
            outcomes = await membership.roles.take(request)
    if was_fenced:  # not by a controller that has spoken before
        membership.leadership_lease.unfence()
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
