"""AlterPartitionReassignments (v0-v1): begin or cancel moving partitions to other brokers (KIP-455).

A lone broker has nowhere to move them to, and says so.
"""

from collections.abc import Sequence

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


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Each partition on its own; answered when the moves have begun. Raises NOT_CONTROLLER for the whole request."""
    membership = context.broker.cluster
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for part in topic.partitions:
            tp = TopicPartition(TopicName(topic.name), PartitionId(part.partition_index))
            twice |= {tp} if tp in wanted else set()
            wanted[tp] = part.replicas
    moves = [(tp, replicas) for tp, replicas in wanted.items() if tp not in twice]
    may_change = request.allow_replication_factor_change
    if membership is None:
        image = context.broker.metadata.image
        answers = [_refusal(image, tp, replicas, may_change=may_change) for tp, replicas in moves]
    else:
        answers = await membership.charge().reassign(moves, allow_factor_change=may_change)
    refused: dict[TopicPartition, OttlaError | None] = dict(zip((tp for tp, _ in moves), answers, strict=True))
    refused |= {tp: InvalidRequest("The partition is named twice.") for tp in twice}
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(
                        part.partition_index,
                        refused[TopicPartition(TopicName(topic.name), PartitionId(part.partition_index))],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refusal(
    image: MetadataImage, partition: TopicPartition, replicas: Sequence[int] | None, *, may_change: bool
) -> OttlaError | None:
    """What a lone broker says: a partition can be moved to where it is, which changes nothing, and nowhere else."""
    try:
        plan_reassignment(image, partition, replicas, allow_replication_factor_change=may_change)
    except OttlaError as refused:
        return refused
    return None


def _result(partition: int, refused: OttlaError | None) -> ReassignablePartitionResponse:
    if refused is None:
        return ReassignablePartitionResponse(partition_index=partition, error_code=ErrorCode.NONE)
    return ReassignablePartitionResponse(partition_index=partition, error_code=refused.code, error_message=str(refused))
