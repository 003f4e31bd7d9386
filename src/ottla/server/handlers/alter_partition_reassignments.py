"""AlterPartitionReassignments (v0-v1): begin or cancel moving partitions to other brokers (KIP-455).

A standalone broker has nowhere to move them to, and answers with an error.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import MetadataImage
from ottla.cluster.reassignments import plan_reassignment
from ottla.errors import ErrorCode, InvalidRequest, OttlaError
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.server.context import RequestContext
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.membership import Membership
    from ottla.slices import Slices

STEP_MASK: Final = 127


async def handle(
    metadata: "MetadataView",
    slices: "Slices",
    membership: "Membership | None",
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,
) -> AlterPartitionReassignmentsResponse:
    """Each partition on its own; answered when the moves have begun. Raises NOT_CONTROLLER for the whole request."""
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        await slices.pause()
        for number, part in enumerate(topic.partitions):
            if number & STEP_MASK == STEP_MASK:
                await slices.pause()
            tp = TopicPartition(TopicName(topic.name), PartitionId(part.partition_index))
            if tp in wanted:
                twice.add(tp)
            wanted[tp] = part.replicas
    moves = [(tp, replicas) for tp, replicas in wanted.items() if tp not in twice]
    may_change = request.allow_replication_factor_change
    if membership is None:
        image = metadata.image
        answers = await slices.map(lambda move: _refusal(image, move[0], move[1], may_change=may_change), moves)
    else:
        answers = await membership.active_controller().reassign(moves, allow_factor_change=may_change)
    refused: dict[TopicPartition, OttlaError | None] = dict(zip((tp for tp, _ in moves), answers, strict=True))
    refused |= {tp: InvalidRequest("The partition is named twice.") for tp in twice}
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await slices.run(_results(request, refused)),
    )


def _results(
    request: AlterPartitionReassignmentsRequest, refused: Mapping[TopicPartition, OttlaError | None]
) -> Steps[list[ReassignableTopicResponse]]:
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        response = ReassignableTopicResponse(name=topic.name, partitions=[])
        responses.append(response)
        for part in topic.partitions:
            tp = TopicPartition(TopicName(topic.name), PartitionId(part.partition_index))
            response.partitions.append(_result(part.partition_index, refused[tp]))
            yield
    return responses


def _refusal(
    image: MetadataImage, partition: TopicPartition, replicas: Sequence[int] | None, *, may_change: bool
) -> OttlaError | None:
    """The answer of a standalone broker: a partition can only be moved to where it is, which changes nothing."""
    try:
        plan_reassignment(image, partition, replicas, allow_replication_factor_change=may_change)
    except OttlaError as refused:
        return refused.with_traceback(None)
    return None


def _result(partition: int, refused: OttlaError | None) -> ReassignablePartitionResponse:
    if refused is None:
        return ReassignablePartitionResponse(partition_index=partition, error_code=ErrorCode.NONE)
    return ReassignablePartitionResponse(partition_index=partition, error_code=refused.code, error_message=str(refused))
