"""FetchSnapshot (v0-v1): a piece of a snapshot of the metadata log, for a node that is far behind (KIP-630)."""

from copy import copy
from typing import TYPE_CHECKING

from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.server.context import RequestContext
from ottla.server.large_answers import PATIENCE_S, SMALL_ANSWER_BYTES

if TYPE_CHECKING:
    from ottla.metadata.quorum.raft_node import RaftNode
    from ottla.server.large_answers import LargeAnswers


async def handle(
    quorum: "RaftNode | None", large_answers: "LargeAnswers", request: FetchSnapshotRequest, context: RequestContext
) -> FetchSnapshotResponse:
    """What the state machine of the quorum answers; a node that does not vote waits for its turn, or is given a small
    piece if that takes long."""
    assert quorum is not None  # routed on nodes of the quorum only
    response: FetchSnapshotResponse
    if request.replica_id in quorum.voter_ids:
        response = await quorum.handle(request, context.api_version)
        return response
    try:
        async with large_answers.turn((context.principal, context.client_host), patience_s=PATIENCE_S):
            response = await quorum.handle(request, context.api_version)
    except TimeoutError:
        few = copy(request)
        few.max_bytes = min(request.max_bytes, SMALL_ANSWER_BYTES)
        response = await quorum.handle(few, context.api_version)
    return response
