"""EndQuorumEpoch (v0-v1): the leader of the metadata quorum resigns, and names its preferred successors (KIP-595)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: EndQuorumEpochRequest, context: RequestContext
) -> EndQuorumEpochResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: EndQuorumEpochResponse = await quorum.handle(request, context.api_version)
    return response
