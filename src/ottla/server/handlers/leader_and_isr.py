"""LeaderAndIsr (v5-v7): the controller says which replicas this broker holds, and who leads them.

Of clusters with ZooKeeper, in the versions of brokers that know topic ids.
"""

from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.server.context import RequestContext


async def handle(request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    """Raises STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH for the whole request."""
    membership = context.broker.cluster
    assert membership is not None  # routed in clusters only
    await membership.metadata.until_registered()
    membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
    was_given_up = membership.standing.is_given_up
    brought = membership.roles.topics_brought(request)
    if brought:
        await membership.metadata.learn_settings(brought)
    async with membership.being_told:
        # Another controller may have spoken while settings were read.
        membership.metadata.check_controller(request.controller_epoch, request.broker_epoch)
        outcomes = await membership.roles.take(request)
    if was_given_up:  # not by a controller that has spoken before
        membership.standing.spoken_to()
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
