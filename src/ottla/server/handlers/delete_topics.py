"""DeleteTopics (v1-v6): by name, since v6 also by id; all that pass in one commit.

The topics are gone from the metadata when the answer is given; their files go afterwards.
"""

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.cluster.image import MetadataImage
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import TopicId, TopicName
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

IDS_SINCE = 6


async def handle(
    metadata: "MetadataView", request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """A topic that is named twice, or by name and id at once, is refused."""
    image = metadata.image
    asked = (
        request.topics
        if context.api_version >= IDS_SINCE
        else [DeleteTopicState(name=name, topic_id=NULL_UUID) for name in request.topic_names]
    )
    refused: list[DeletableTopicResult] = []
    wanted: list[TopicName] = []
    for (name, topic_id), often in Counter((state.name, state.topic_id) for state in asked).items():
        resolved = _resolve(image, name, topic_id, often)
        if isinstance(resolved, DeletableTopicResult):
            refused.append(resolved)
        else:
            wanted.append(resolved)
    twice = {name for name, often in Counter(wanted).items() if often > 1}
    refused += [_refusal(name, NULL_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice]
    names = [name for name in wanted if name not in twice]
    deleted = await metadata.delete_topics(names)
    results = [
        _refusal(name, NULL_UUID, answer.code, str(answer))
        if isinstance(answer, OttlaError)
        else DeletableTopicResult(name=name, topic_id=answer.topic_id)
        for name, answer in zip(names, deleted, strict=True)
    ]
    return DeleteTopicsResponse(responses=results + refused)


def _resolve(image: MetadataImage, name: str | None, topic_id: UUID, often: int) -> TopicName | DeletableTopicResult:
    """The topic's name, or the reason why it is unknown."""
    if name is not None:
        if topic_id != NULL_UUID:
            message = "You may not specify both topic name and topic id."
            return _refusal(name, topic_id, ErrorCode.INVALID_REQUEST, message)
        if often > 1:
            return _refusal(name, NULL_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        return TopicName(name)
    if topic_id == NULL_UUID:
        return _refusal(None, topic_id, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if often > 1:
        return _refusal(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    topic = image.topics_by_id.get(TopicId(topic_id))
    if topic is None:
        return _refusal(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic.name


def _refusal(name: str | None, topic_id: UUID, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
