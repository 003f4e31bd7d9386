"""Vote (v0-v2): a node of the metadata quorum asks for a vote, or whether it would get one (KIP-595, KIP-996)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(quorum: "RaftNode | None", request: VoteRequest, context: RequestContext) -> VoteResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: VoteResponse = await quorum.handle(request, context.api_version)
    return response
