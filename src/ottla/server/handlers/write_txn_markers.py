"""WriteTxnMarkers (v1-v2): a transaction coordinator ends transactions in the partitions of this broker (KIP-98).

Administrators send it as well, to abort a transaction that its coordinator knows nothing of (KIP-664). That is all it
does for those who are no brokers.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.server.context import RequestContext
from ottla.server.hanging_transactions import abort_hanging
from ottla.transactions.markers import TransactionMarker

NONE: Final = -1


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Each marker in each partition on its own; answered when all are committed, or have failed."""
    results = await asyncio.gather(*(_write(marker, context) for marker in request.markers))
    return WriteTxnMarkersResponse(markers=list(results))


async def _write(wanted: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
    partitions = [
        TopicPartition(TopicName(topic.name), PartitionId(number))
        for topic in wanted.topics
        for number in topic.partition_indexes
    ]
    if NONE in (marker.producer_id, marker.producer_epoch):
        # A marker of nobody's would lie in the log for ever. Kafka has no better word for it.
        outcomes: Mapping[TopicPartition, ErrorCode] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    elif context.from_broker:
        outcomes = await context.broker.markers.send(marker, partitions)
    else:
        outcomes = await abort_hanging(marker, partitions, context.broker)
    by_topic: dict[str, dict[int, ErrorCode]] = {}
    for partition, code in outcomes.items():
        by_topic.setdefault(partition.topic, {})[partition.partition] = code
    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
                    for number, code in codes.items()
                ],
            )
            for name, codes in by_topic.items()
        ],
    )
