"""DescribeProducers (v0): the producers a partition remembers, their sequences and open transactions (KIP-664)."""

from typing import TYPE_CHECKING, Final

from ottla.cluster.controller import check_topic_name
from ottla.errors import OttlaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.server.context import RequestContext
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager
    from ottla.slices import Slices

NO_OFFSET: Final = -1


async def handle(
    replicas: "ReplicaManager", slices: "Slices", request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Each partition on its own."""
    return await slices.run(_answer(replicas, request, context))


def _answer(
    replicas: "ReplicaManager", request: DescribeProducersRequest, context: RequestContext
) -> Steps[DescribeProducersResponse]:
    response = DescribeProducersResponse(topics=[])
    for topic in request.topics:
        described = TopicResponse(name=topic.name, partitions=[])
        response.topics.append(described)
        for number in topic.partition_indexes:
            described.partitions.append(_describe(replicas, topic.name, number, context))
            yield
    return response


def _describe(replicas: "ReplicaManager", topic: str, number: int, context: RequestContext) -> PartitionResponse:
    response = PartitionResponse(partition_index=number, active_producers=[])
    try:
        check_topic_name(topic)
        partition = replicas.leader(topic, number)
    except OttlaError as refused:
        response.error_code, response.error_message = refused.code, str(refused)
        return response
    response.active_producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=NO_OFFSET
            if entry.transaction_first_offset is None
            else entry.transaction_first_offset,
        )
        for entry in partition.log.producer_state.producers.values()
    ]
    return response
