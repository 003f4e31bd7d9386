"""Fetch (v4-v18) at a controller: the metadata log, for voters and observers of the quorum (KIP-595).

Hundreds of nodes may ask for much of it at once, or take nothing of what they get. So one that does not vote waits for
its turn where it lacks much; if that takes long, it is given the next few records.
"""

from copy import copy
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.records.batch import iter_batches
from ottla.server.context import RequestContext
from ottla.server.large_answers import PATIENCE_S, SMALL_ANSWER_BYTES, LargeAnswers


async def handle(
    quorum: Any, large_answers: LargeAnswers, request: FetchRequest, context: RequestContext
) -> FetchResponse:
    """What the state machine of the quorum answers."""
    version = context.api_version
    response: FetchResponse
    if not _lags(quorum, request):
        response = await quorum.handle(request, version)
        return response
    few = copy(request)
    few.max_bytes = min(request.max_bytes, SMALL_ANSWER_BYTES)
    response = await quorum.handle(few, version, within_limit=True)
    if not _needs_more(response, quorum.high_watermark or 0):
        return response
    patience_s = PATIENCE_S if _has_records(response) else None  # its next batch is a large one
    try:
        async with large_answers.turn((context.principal, context.client_host), patience_s=patience_s):
            response = await quorum.handle(request, version)
    except TimeoutError:
        pass
    return response


def _lags(quorum: Any, request: FetchRequest) -> bool:
    """Whether the answer has records, and is not a voter's."""
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica in quorum.voter_ids:
        return False
    committed = quorum.high_watermark or 0
    return any(part.fetch_offset < committed for topic in request.topics for part in topic.partitions)


def _has_records(response: FetchResponse) -> bool:
    return any(part.records for topic in response.responses for part in topic.partitions)


def _needs_more(response: FetchResponse, committed: int) -> bool:
    """Whether committed records are left behind those of a small answer."""
    if response.error_code:
        return False
    for topic in response.responses:
        for part in topic.partitions:
            if part.error_code != ErrorCode.NONE or part.diverging_epoch is not None or part.snapshot_id is not None:
                return False
            batches = list(iter_batches(part.records)) if part.records else []
            return not batches or batches[-1].next_offset < committed
    return False
