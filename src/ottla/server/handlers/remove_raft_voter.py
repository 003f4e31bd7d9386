"""RemoveRaftVoter (v0): a voter of the metadata quorum becomes an observer (KIP-853)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: RemoveRaftVoterResponse = await quorum.handle(request, context.api_version)
    return response
