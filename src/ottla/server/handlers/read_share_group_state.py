"""ReadShareGroupState (v0): the leader of share partitions loads what is known of them (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.server.context import RequestContext
from ottla.server.share_state_partitions import answer_each
from ottla.share.state import SharePartitionKey

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.slices import Slices


async def handle(
    share_state: "ShareCoordinator", slices: "Slices", request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:

    async def ask(key: SharePartitionKey, asked: PartitionData) -> PartitionResult:
        state = await share_state.read(*key, asked.leader_epoch)
        batches = [
            StateBatch(first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count)
            for first, last, delivery, count in state.batches
        ]
        return PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=batches,
        )

    answers = await answer_each(slices, context, request.group_id, request.topics, ask, _refuse)
    return ReadShareGroupStateResponse(
        results=[ReadStateResult(topic_id=topic_id, partitions=results) for topic_id, results in answers]
    )


def _refuse(asked: PartitionData, error: OttlaError) -> PartitionResult:
    return PartitionResult(
        partition=asked.partition,
        error_code=error.code,
        error_message=str(error),
        state_epoch=0,
        start_offset=0,
        state_batches=[],
    )
