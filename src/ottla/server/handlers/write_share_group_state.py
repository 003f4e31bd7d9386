"""WriteShareGroupState (v0-v1): the leader of share partitions stores what was delivered (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.protocol.messages.write_share_group_state import StateBatch as AskedBatch
from ottla.server.context import RequestContext
from ottla.server.share_state_partitions import answer_each
from ottla.share.state import SharePartitionKey, StateBatch
from ottla.share.state_events import WriteState

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.slices import Slices


async def handle(
    share_state: "ShareCoordinator", slices: "Slices", request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:

    async def ask(key: SharePartitionKey, asked: PartitionData) -> PartitionResult:
        batches = tuple(await slices.map(_batch, asked.state_batches))
        write = WriteState(
            key, asked.state_epoch, asked.leader_epoch, asked.start_offset, batches, asked.delivery_complete_count
        )
        done = await share_state.change(write)
        return PartitionResult(partition=key.partition, error_code=done.error, error_message=done.message)

    answers = await answer_each(slices, context, request.group_id, request.topics, ask, _refuse)
    return WriteShareGroupStateResponse(
        results=[WriteStateResult(topic_id=topic_id, partitions=results) for topic_id, results in answers]
    )


def _batch(asked: AskedBatch) -> StateBatch:
    return StateBatch(asked.first_offset, asked.last_offset, asked.delivery_state, asked.delivery_count)


def _refuse(asked: PartitionData, error: OttlaError) -> PartitionResult:
    return PartitionResult(partition=asked.partition, error_code=error.code, error_message=str(error))
