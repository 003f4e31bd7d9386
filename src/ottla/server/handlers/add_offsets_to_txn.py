"""AddOffsetsToTxn (v0-v4): a transaction is about to commit offsets of a group (KIP-98).

It adds the partition of `__consumer_offsets` that stands for the group. Clients of the second generation leave that to
TxnOffsetCommit (KIP-890).
"""

from collections.abc import Awaitable
from typing import Final

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import ProducerIdAndEpoch, TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.server.context import RequestContext
from ottla.server.producer_connections import To
from ottla.server.producer_errors import fenced_error

FENCED_SINCE: Final = 2
FIRST_GENERATION: Final = 0


def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> Awaitable[AddOffsetsToTxnResponse]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    context.broker.producer_connections.refuse_late(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return _add(request, producer, context)


async def _add(
    request: AddOffsetsToTxnRequest, producer: ProducerIdAndEpoch, context: RequestContext
) -> AddOffsetsToTxnResponse:
    broker = context.broker
    group = TopicPartition(broker.groups.topic.name, broker.groups.partition_for(request.group_id))
    try:
        added = await broker.transactions.add_partitions(
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
        broker.producer_connections.accepted(To.TRANSACTION_COORDINATOR, producer, context.connection_id)
    return AddOffsetsToTxnResponse(error_code=fenced_error(error, context.api_version >= FENCED_SINCE))
