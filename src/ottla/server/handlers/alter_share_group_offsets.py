"""AlterShareGroupOffsets (v0): have a share group without members start elsewhere (KIP-932).

Kafka 4.1 lost the topics on the way: it changed nothing, and answered as if nothing were wrong. Later ones do it. Here
a group that has members, or is none, is an error.
"""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.share.events import ShareOffset
from ottla.ids import ZERO_TOPIC_ID, GroupId, PartitionId, TopicId, TopicName
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.share_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.metadata.view import MetadataView

NO_SUCH_PARTITION: Final = "This server does not host this topic-partition."


async def handle(
    metadata: "MetadataView",
    share_groups: "ShareGroupCoordinator",
    request: AlterShareGroupOffsetsRequest,
    context: RequestContext,
) -> AlterShareGroupOffsetsResponse:
    if not are_offered(metadata):
        return _refused(request, ErrorCode.UNSUPPORTED_VERSION, "Share groups are turned off.")
    if not request.group_id:
        return _refused(request, ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
    offsets = [
        ShareOffset(TopicName(topic.topic_name), PartitionId(partition.partition_index), partition.start_offset)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if not offsets:
        return AlterShareGroupOffsetsResponse(responses=[])
    try:
        altered = await share_groups.alter_offsets(GroupId(request.group_id), offsets)
    except OttlaError as error:
        return _refused(request, error.code, str(error))
    if altered.error:
        return _refused(request, altered.error, altered.message)
    topics = metadata.image.topics
    ids = {requested.topic: topics[requested.topic].topic_id for requested in offsets if requested.topic in topics}
    answers = ((error, _words(error)) for error in altered.errors)
    return AlterShareGroupOffsetsResponse(responses=_responses(request, ids, answers))


def _refused(
    request: AlterShareGroupOffsetsRequest, error: ErrorCode, message: str | None
) -> AlterShareGroupOffsetsResponse:
    """The error of the whole request stands with every partition too: Kafka's client looks nowhere else."""
    responses = _responses(request, {}, repeat((error, message)))
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message, responses=responses)


def _responses(
    request: AlterShareGroupOffsetsRequest,
    ids: Mapping[TopicName, TopicId],
    answers: Iterable[tuple[ErrorCode, str | None]],
) -> list[AlterShareGroupOffsetsResponseTopic]:
    """One answer for each partition, in the request's order."""
    following = iter(answers)
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            error, message = next(following)
            partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index, error_code=error, error_message=message
                )
            )
        topic_id = ids.get(TopicName(topic.topic_name), ZERO_TOPIC_ID)
        responses.append(
            AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions)
        )
    return responses


def _words(error: ErrorCode) -> str | None:
    if error is ErrorCode.NONE:
        return None
    return NO_SUCH_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.name
