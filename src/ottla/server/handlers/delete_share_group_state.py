"""DeleteShareGroupState (v0): a group coordinator has the state of share partitions forgotten (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.server.context import RequestContext
from ottla.server.share_state_partitions import answer_each
from ottla.share.state import SharePartitionKey
from ottla.share.state_events import DeleteState

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.slices import Slices


async def handle(
    share_state: "ShareCoordinator", slices: "Slices", request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:

    async def ask(key: SharePartitionKey, asked: PartitionData) -> PartitionResult:
        done = await share_state.change(DeleteState(key))
        return PartitionResult(partition=key.partition, error_code=done.error, error_message=done.message)

    answers = await answer_each(slices, context, request.group_id, request.topics, ask, _refuse)
    return DeleteShareGroupStateResponse(
        results=[DeleteStateResult(topic_id=topic_id, partitions=results) for topic_id, results in answers]
    )


def _refuse(asked: PartitionData, error: OttlaError) -> PartitionResult:
    return PartitionResult(partition=asked.partition, error_code=error.code, error_message=str(error))
