"""DeleteRecords (v0-v2): move the beginning of a partition up; what lies below goes with the next retention check.

Only what is committed can be deleted. Records that a producer wrote with acks=0 or 1 may still wait for the sync they
share with others: a request that names them waits with them.
"""

from typing import TYPE_CHECKING, Final

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import InvalidTopic, OffsetOutOfRange, OttlaError
from ottla.ids import Offset
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.delayed import DelayedProduce
from ottla.server.context import Deferred, RequestContext

if TYPE_CHECKING:
    from ottla.errors import ErrorCode
    from ottla.replication.partition import Partition

TO_THE_END: Final = -1
"""Asks for everything that is there."""
NO_OFFSET: Final = -1


def handle(
    request: DeleteRecordsRequest, context: RequestContext
) -> "DeleteRecordsResponse | Deferred[DeleteRecordsResponse]":
    """Each partition on its own."""
    response = DeleteRecordsResponse(topics=[])
    waiting: dict[int, tuple[Partition, Offset, DeleteRecordsPartitionResult]] = {}
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=NO_OFFSET)
            results.append(result)
            try:
                partition, before = _find(topic.name, wanted.partition_index, wanted.offset, context)
                if partition.high_watermark < before <= partition.log.log_end_offset:
                    waiting[len(waiting)] = (partition, before, result)
                else:
                    result.low_watermark = partition.log.delete_records_before(before)
            except OttlaError as refused:
                result.error_code = refused.code
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if not waiting:
        return response

    deferred: Deferred[DeleteRecordsResponse] = Deferred()

    def finish(uncommitted: "dict[int, ErrorCode]") -> None:
        for key, (partition, before, result) in waiting.items():
            try:
                if key in uncommitted:
                    result.error_code = uncommitted[key]
                else:
                    result.low_watermark = partition.log.delete_records_before(before)
            except OttlaError as refused:
                result.error_code = refused.code
        deferred.complete(response)

    delayed = DelayedProduce(set(waiting), request.timeout_ms / 1000, context.broker.loop, finish)
    for key, (partition, _, _) in waiting.items():
        partition.mark_dirty()
        partition.when_committed(Offset(partition.log.log_end_offset), key, delayed)
    return deferred


def _find(topic: str, number: int, offset: int, context: RequestContext) -> "tuple[Partition, Offset]":
    partition = context.broker.replicas.leader(topic, number)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
    if offset == TO_THE_END:
        return partition, partition.log.log_end_offset
    if offset < 0:
        raise OffsetOutOfRange(f"offset {offset} of {partition.topic_partition} is negative")
    return partition, Offset(offset)
