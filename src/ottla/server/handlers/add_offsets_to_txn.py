"""AddOffsetsToTxn (v0-v4): a transaction is about to commit offsets of a group (KIP-98).

It adds the partition of `__consumer_offsets` that stands for the group. Clients of the second generation leave that to
TxnOffsetCommit (KIP-890).
"""

from typing import Final

from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.server.context import RequestContext
from ottla.server.producer_errors import told_fenced

FENCED_SINCE: Final = 2
FIRST_GENERATION: Final = 0


async def handle(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    broker = context.broker
    group = TopicPartition(broker.groups.topic.name, broker.groups.partition_for(request.group_id))
    try:
        added = await broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [group],
            verify_only=False,
            client_version=FIRST_GENERATION,
        )
        error = added[group]
    except OttlaError as refused:
        error = refused.code
    return AddOffsetsToTxnResponse(error_code=told_fenced(error, context.api_version >= FENCED_SINCE))
