"""DeleteShareGroupOffsets (v0): have a share group without members forget topics (KIP-932)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import GroupId, TopicName
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.share_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.metadata.view import MetadataView


async def handle(
    metadata: "MetadataView",
    share_groups: "ShareGroupCoordinator",
    request: DeleteShareGroupOffsetsRequest,
    context: RequestContext,
) -> DeleteShareGroupOffsetsResponse:
    if not are_offered(metadata):
        return _refused(ErrorCode.UNSUPPORTED_VERSION, "Share groups are turned off.")
    topics = [TopicName(topic.topic_name) for topic in request.topics]
    if not topics:
        return DeleteShareGroupOffsetsResponse(responses=[])
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID, "The group id must not be empty.")
    try:
        deletion = await share_groups.delete_offsets(GroupId(request.group_id), topics)
    except OttlaError as error:
        return _refused(error.code, str(error))
    if deletion.error:
        return _refused(deletion.error, deletion.message)
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic, topic_id=topic.topic_id, error_code=topic.error, error_message=topic.message
            )
            for topic in deletion.topics
        ]
    )


def _refused(error: ErrorCode, message: str | None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message, responses=[])
