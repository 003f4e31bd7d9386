"""BeginQuorumEpoch (v0-v1): the leader of the metadata quorum announces its election to a voter (KIP-595)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: BeginQuorumEpochRequest, context: RequestContext
) -> BeginQuorumEpochResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: BeginQuorumEpochResponse = await quorum.handle(request, context.api_version)
    return response
