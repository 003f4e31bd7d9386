"""CreatePartitions (v0-v3): topics grow, each on its own, all that pass in one commit."""

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import InvalidRequest
from ottla.ids import TopicName
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView


async def handle(
    metadata: "MetadataView", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """A topic that is named twice is refused, once."""
    often = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if often[topic.name] == 1]
    answers = await metadata.create_partitions(
        [
            (
                TopicName(topic.name),
                topic.count,
                None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
            )
            for topic in wanted
        ],
        validate_only=request.validate_only,
    )
    by_name = dict(zip((topic.name for topic in wanted), answers, strict=True))
    results: list[CreatePartitionsTopicResult] = []
    for name in often:
        refused = by_name.get(name, InvalidRequest("Duplicate topic name."))
        result = CreatePartitionsTopicResult(name=name)
        if refused is not None:
            result.error_code, result.error_message = refused.code, str(refused)
        results.append(result)
    return CreatePartitionsResponse(results=results)
