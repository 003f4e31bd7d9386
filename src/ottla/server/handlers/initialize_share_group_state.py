"""InitializeShareGroupState (v0): a group coordinator has share partitions start over (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.server.context import RequestContext
from ottla.server.share_state_partitions import answer_each
from ottla.share.state import SharePartitionKey
from ottla.share.state_events import InitializeState

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.slices import Slices


async def handle(
    share_state: "ShareCoordinator",
    slices: "Slices",
    request: InitializeShareGroupStateRequest,
    context: RequestContext,
) -> InitializeShareGroupStateResponse:

    async def ask(key: SharePartitionKey, asked: PartitionData) -> PartitionResult:
        done = await share_state.change(InitializeState(key, asked.state_epoch, asked.start_offset))
        return PartitionResult(partition=key.partition, error_code=done.error, error_message=done.message)

    answers = await answer_each(slices, context, request.group_id, request.topics, ask, _refuse)
    return InitializeShareGroupStateResponse(
        results=[InitializeStateResult(topic_id=topic_id, partitions=results) for topic_id, results in answers]
    )


def _refuse(asked: PartitionData, error: OttlaError) -> PartitionResult:
    return PartitionResult(partition=asked.partition, error_code=error.code, error_message=str(error))
