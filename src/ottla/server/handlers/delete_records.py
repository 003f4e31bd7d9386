"""DeleteRecords (v0-v2): move the beginning of a partition up; what lies below goes with the next retention check."""

from typing import Final

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import InvalidTopic, OffsetOutOfRange, OttlaError
from ottla.ids import Offset
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.server.context import RequestContext

TO_THE_END: Final = -1
"""Asks for everything that is committed."""
NO_OFFSET: Final = -1


def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Each partition on its own."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(topic.name, wanted.partition_index, wanted.offset, context) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, number: int, offset: int, context: RequestContext) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=number, low_watermark=NO_OFFSET)
    try:
        partition = context.broker.replicas.leader(topic, number)
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"Cannot delete records of internal topic {topic}")
        if offset == TO_THE_END:
            offset = partition.high_watermark
        elif offset < 0:
            raise OffsetOutOfRange(f"offset {offset} of {partition.topic_partition} is negative")
        result.low_watermark = partition.log.delete_records_before(Offset(offset))
    except OttlaError as refused:
        result.error_code = refused.code
    return result
