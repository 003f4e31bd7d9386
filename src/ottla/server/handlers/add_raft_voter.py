"""AddRaftVoter (v0-v1): a node becomes a voter of the metadata quorum (KIP-853)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode


async def handle(
    quorum: "RaftNode | None", request: AddRaftVoterRequest, context: RequestContext
) -> AddRaftVoterResponse:
    """What the state machine of the quorum answers."""
    assert quorum is not None  # routed on nodes of the quorum only
    if quorum.voters_stay:
        return AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=quorum.voters_stay)
    response: AddRaftVoterResponse = await quorum.handle(request, context.api_version)
    return response
