"""ControlledShutdown (v2-v3): a broker wants to stop, and the controller has others lead what it leads.

For clusters with ZooKeeper.
"""

from typing import TYPE_CHECKING

from ottla.ids import BrokerId
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.server.membership import Membership


async def handle(
    membership: "Membership | None", request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    """The remaining partitions have no leader if the broker stops all the same. Raises NOT_CONTROLLER,
    STALE_BROKER_EPOCH.
    """
    assert membership is not None  # routed in clusters only
    remaining = await membership.active_controller().let_stop(BrokerId(request.broker_id), request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
        ]
    )
