"""Fetch (v4-v18) at a controller: the metadata log, for voters and observers of the quorum (KIP-595).

Hundreds of nodes may ask for much of it at once, or take nothing of what they get: only voters do not wait for a turn.
"""

from typing import Any

from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.server.context import RequestContext
from ottla.server.memory import LargeAnswers


async def handle(
    quorum: Any, large_answers: LargeAnswers, request: FetchRequest, context: RequestContext
) -> FetchResponse:
    """What the state machine of the quorum answers."""
    response: FetchResponse
    if _lags(quorum, request):
        async with large_answers.turn():
            response = await quorum.handle(request, context.api_version)
    else:
        response = await quorum.handle(request, context.api_version)
    return response


def _lags(quorum: Any, request: FetchRequest) -> bool:
    """Whether the answer has records, and is not a voter's."""
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica in quorum.voter_ids:
        return False
    committed = quorum.high_watermark or 0
    return any(part.fetch_offset < committed for topic in request.topics for part in topic.partitions)
