"""ReadShareGroupStateSummary (v0-v1): where share partitions start, and how many records are finished (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import ApiError, OttlaError
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.server.context import RequestContext
from ottla.server.share_state_partitions import answer_each
from ottla.share.state import SharePartitionKey

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.slices import Slices


async def handle(
    share_state: "ShareCoordinator",
    slices: "Slices",
    request: ReadShareGroupStateSummaryRequest,
    context: RequestContext,
) -> ReadShareGroupStateSummaryResponse:

    async def ask(key: SharePartitionKey, asked: PartitionData) -> PartitionResult:
        summary = await share_state.summarize(key)
        if summary.error:
            raise ApiError(summary.error, summary.message or "")
        return PartitionResult(
            partition=key.partition,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.complete_count,
        )

    answers = await answer_each(slices, context, request.group_id, request.topics, ask, _refuse)
    return ReadShareGroupStateSummaryResponse(
        results=[ReadStateSummaryResult(topic_id=topic_id, partitions=results) for topic_id, results in answers]
    )


def _refuse(asked: PartitionData, error: OttlaError) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=error.code,
        error_message=str(error),
        state_epoch=0,
        leader_epoch=0,
        start_offset=0,
    )
