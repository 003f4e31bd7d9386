"""WriteTxnMarkers (v1-v2): a transaction coordinator ends transactions in the partitions of this broker (KIP-98).

Administrators send it as well, to abort a transaction that its coordinator does not know (KIP-664). From
clients it does nothing else.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from ottla.coordination.markers import TransactionMarker
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
from ottla.server.hanging_transactions import Parts, abort_hanging

NONE: Final = -1


async def handle(parts: Parts, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Each marker in each partition on its own; answered when all are committed, or have failed."""
    results = await parts.slices.together(partial(_write, parts, context=context), request.markers)
    return WriteTxnMarkersResponse(markers=results)


async def _write(parts: Parts, wanted: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
    pause = parts.slices.pause
    partitions: list[TopicPartition] = []
    for topic in wanted.topics:
        await pause()
        partitions += (TopicPartition(TopicName(topic.name), PartitionId(number)) for number in topic.partition_indexes)
    if NONE in (marker.producer_id, marker.producer_epoch):
        # A marker without a transaction would stay in the log forever. Kafka has no better error for it.
        outcomes: Mapping[TopicPartition, ErrorCode] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    elif context.from_broker:
        outcomes = await parts.markers.send(marker, partitions)
    else:
        outcomes = await abort_hanging(marker, partitions, parts)
    by_topic: dict[str, dict[int, ErrorCode]] = {}
    for partition, code in outcomes.items():
        await pause()
        by_topic.setdefault(partition.topic, {})[partition.partition] = code
    result = WritableTxnMarkerResult(producer_id=wanted.producer_id, topics=[])
    for name, codes in by_topic.items():
        of_topic = WritableTxnMarkerTopicResult(name=name, partitions=[])
        result.topics.append(of_topic)
        for number, code in codes.items():
            await pause()
            of_topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=number, error_code=code))
    return result
