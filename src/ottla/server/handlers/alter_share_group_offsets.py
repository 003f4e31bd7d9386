"""AlterShareGroupOffsets (v0): have a share group without members start elsewhere (KIP-932).

Kafka 4.1.1 has the API, but loses the topics on the way: it changes nothing, and answers as if nothing were wrong. Here
offsets change, and a group that has members, or is none, is an error.
"""

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.share_events import ShareOffset
from ottla.ids import ZERO_TOPIC_ID, GroupId, PartitionId, TopicName
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.share_group_requests import are_offered

NO_SUCH_PARTITION = "This server does not host this topic-partition."


async def handle(request: AlterShareGroupOffsetsRequest, context: RequestContext) -> AlterShareGroupOffsetsResponse:
    if not are_offered(context.broker):
        return _refused(ErrorCode.UNSUPPORTED_VERSION, "Share groups are turned off.")
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
    offsets = [
        ShareOffset(TopicName(topic.topic_name), PartitionId(partition.partition_index), partition.start_offset)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if not offsets:
        return AlterShareGroupOffsetsResponse(responses=[])
    try:
        altered = await context.broker.share_groups.alter_offsets(GroupId(request.group_id), offsets)
    except OttlaError as error:
        return _refused(error.code, str(error))
    if altered.error:
        return _refused(altered.error, altered.message)
    topics = context.broker.metadata.image.topics
    responses: dict[TopicName, AlterShareGroupOffsetsResponseTopic] = {}
    for wish, error_code in zip(offsets, altered.errors, strict=True):
        response = responses.get(wish.topic)
        if response is None:
            topic = topics.get(wish.topic)
            response = responses[wish.topic] = AlterShareGroupOffsetsResponseTopic(
                topic_name=wish.topic, topic_id=ZERO_TOPIC_ID if topic is None else topic.topic_id, partitions=[]
            )
        response.partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=wish.partition,
                error_code=error_code,
                error_message=_words(error_code),
            )
        )
    return AlterShareGroupOffsetsResponse(responses=list(responses.values()))


def _words(error: ErrorCode) -> str | None:
    if error is ErrorCode.NONE:
        return None
    return NO_SUCH_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.name


def _refused(error: ErrorCode, message: str | None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message, responses=[])
