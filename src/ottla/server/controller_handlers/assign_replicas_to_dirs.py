"""AssignReplicasToDirs (v0): which log directories of a broker hold its replicas (KIP-858)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum_controller import QuorumController


async def handle(
    controller: "QuorumController", request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    """Each partition on its own. Raises NOT_CONTROLLER and STALE_BROKER_EPOCH for the whole request."""
    return await controller.assign_directories(request)
