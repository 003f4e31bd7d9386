"""AddPartitionsToTxn (v0-v5): partitions that a transaction is about to write to (KIP-98).

Clients of the first generation send it, up to version 3. Later versions come from brokers, for several transactions at
once, to add partitions or only to verify that they were added (KIP-890).
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import PartitionId, ProducerIdAndEpoch, TopicName, TopicPartition
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.server.context import RequestContext
from ottla.server.producer_connections import To
from ottla.server.producer_errors import fenced_error
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.server.producer_connections import ProducerConnections
    from ottla.slices import Slices

FENCED_SINCE: Final = 2
BROKERS_SINCE: Final = 4
NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED
FIRST_GENERATION: Final = 0
SECOND_GENERATION: Final = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    producer_connections: "ProducerConnections"
    transactions: "TransactionCoordinator"
    slices: "Slices"


def handle(
    parts: Parts, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Awaitable[AddPartitionsToTxnResponse]:
    if context.api_version >= BROKERS_SINCE:
        return _add_of_several(parts, request, context)
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    producer = ProducerIdAndEpoch(only.producer_id, only.producer_epoch)
    parts.producer_connections.refuse_late(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return _add_of_one(parts, only, producer, context)


async def _add_of_several(
    parts: Parts, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    results = await parts.slices.together(partial(_add, parts, context=context), request.transactions)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=result)
            for transaction, result in zip(request.transactions, results, strict=True)
        ]
    )


async def _add_of_one(
    parts: Parts, transaction: AddPartitionsToTxnTransaction, producer: ProducerIdAndEpoch, context: RequestContext
) -> AddPartitionsToTxnResponse:
    results = await _add(parts, transaction, context)
    if not any(result.partition_error_code for topic in results for result in topic.results_by_partition):
        parts.producer_connections.accepted(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add(
    parts: Parts, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [
        TopicPartition(TopicName(topic.name), PartitionId(number))
        for topic in transaction.topics
        for number in topic.partitions
    ]
    refused = await parts.slices.run(_refused(parts, partitions, context))
    if refused:  # all or nothing
        return _results({partition: refused.get(partition, NOT_ATTEMPTED) for partition in partitions})
    try:
        errors = await parts.transactions.add_partitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            verify_only=transaction.verify_only,
            client_version=SECOND_GENERATION if context.api_version >= BROKERS_SINCE else FIRST_GENERATION,
        )
    except OttlaError as error:
        errors = dict.fromkeys(partitions, error.code)
    knows_fenced = context.api_version >= FENCED_SINCE
    return _results({partition: fenced_error(error, knows_fenced) for partition, error in errors.items()})


def _refused(
    parts: Parts, partitions: Sequence[TopicPartition], context: RequestContext
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """Clients add no internal topics: committed offsets become part of a transaction by AddOffsetsToTxn."""
    image = parts.metadata.image
    refused: dict[TopicPartition, ErrorCode] = {}
    for partition in partitions:
        yield
        if partition.topic in INTERNAL_TOPICS and context.api_version < BROKERS_SINCE:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(partition) is None:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _results(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, partition), error in errors.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=error)
        by_topic.setdefault(topic, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results) for topic, results in by_topic.items()
    ]
