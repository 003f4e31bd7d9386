"""AddOffsetsToTxn (v0-v4): a transaction is about to commit offsets of a group (KIP-98).

It adds the partition of `__consumer_offsets` that stands for the group. Clients of the second generation leave that to
TxnOffsetCommit (KIP-890).
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import ProducerIdAndEpoch, TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.server.context import RequestContext
from ottla.server.producer_connections import To
from ottla.server.producer_errors import fenced_error

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.server.producer_connections import ProducerConnections

FENCED_SINCE: Final = 2
FIRST_GENERATION: Final = 0


def handle(
    groups: "GroupCoordinator",
    producer_connections: "ProducerConnections",
    transactions: "TransactionCoordinator",
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
) -> Awaitable[AddOffsetsToTxnResponse]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    producer_connections.refuse_late(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return _add(groups, producer_connections, transactions, request, producer, context)


async def _add(
    groups: "GroupCoordinator",
    producer_connections: "ProducerConnections",
    transactions: "TransactionCoordinator",
    request: AddOffsetsToTxnRequest,
    producer: ProducerIdAndEpoch,
    context: RequestContext,
) -> AddOffsetsToTxnResponse:
    group = TopicPartition(groups.topic.name, groups.partition_for(request.group_id))
    try:
        added = await transactions.add_partitions(
            request.transactional_id,
            producer.producer_id,
            producer.epoch,
            [group],
            verify_only=False,
            client_version=FIRST_GENERATION,
        )
        error = added[group]
    except OttlaError as refused:
        error = refused.code
    if error is ErrorCode.NONE:
        producer_connections.accepted(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return AddOffsetsToTxnResponse(error_code=fenced_error(error, context.api_version >= FENCED_SINCE))
