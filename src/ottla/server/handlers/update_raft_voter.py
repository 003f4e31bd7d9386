"""UpdateRaftVoter (v0): a voter of the metadata quorum reports its addresses and versions (KIP-853)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: UpdateRaftVoterRequest, context: RequestContext
) -> UpdateRaftVoterResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: UpdateRaftVoterResponse = await quorum.handle(request, context.api_version)
    return response
