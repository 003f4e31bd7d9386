"""FetchSnapshot (v0-v1): a piece of a snapshot of the metadata log, for a node that is far behind (KIP-630)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode
    from ottla.server.memory import LargeAnswers


async def handle(
    quorum: "RaftNode | None", large_answers: "LargeAnswers", request: FetchSnapshotRequest, context: RequestContext
) -> FetchSnapshotResponse:
    """What the state machine of the quorum answers; a node that does not vote waits for its turn."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: FetchSnapshotResponse
    if request.replica_id in quorum.voter_ids:
        response = await quorum.handle(request, context.api_version)
    else:
        async with large_answers.turn():
            response = await quorum.handle(request, context.api_version)
    return response
