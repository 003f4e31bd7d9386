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
STRICT_QUOTA_SINCE = 5
"""Clients understand that a change has to wait (KIP-599)."""


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
    names, over_quota = _within_quota(metadata, names, context)
    refused += [_refusal(name, NULL_UUID, problem.code, str(problem)) for name, problem in over_quota.items()]
    deleted = await metadata.delete_topics(names)
    results = [
        _refusal(name, NULL_UUID, answer.code, str(answer))
        if isinstance(answer, OttlaError)
        else DeletableTopicResult(name=name, topic_id=answer.topic_id)
        for name, answer in zip(names, deleted, strict=True)
    ]
    return DeleteTopicsResponse(responses=results + refused)


def _within_quota(
    metadata: "MetadataView", names: list[TopicName], context: RequestContext
) -> tuple[list[TopicName], dict[TopicName, OttlaError]]:
    """The topics that may be deleted now, and those for which a quota is used up."""
    metered, image = context.metered, metadata.image
    if metered is None or not metered.limits_changes or image.controller_id != metadata.broker_id:
        return names, {}
    refused: dict[TopicName, OttlaError] = {}
    for name in names:
        partitions = len(image.topics[name].partitions) if name in image.topics else 0
        problem = metered.refusal(partitions, strictly=context.api_version >= STRICT_QUOTA_SINCE)
        if problem is not None:
            refused[name] = problem
    return [name for name in names if name not in refused], refused


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
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message or None)
