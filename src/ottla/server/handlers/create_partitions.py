"""CreatePartitions (v0-v3): topics grow, each on its own, all that pass in one commit."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.errors import InvalidRequest, OttlaError
from ottla.ids import TopicName
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView

STRICT_QUOTA_SINCE: Final = 3
"""Clients understand that a change has to wait (KIP-599)."""


async def handle(
    metadata: "MetadataView", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """A topic that is named twice is refused, once."""
    often = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if often[topic.name] == 1]
    growths = [_growth(topic) for topic in wanted]
    over_quota = await _over_quota(metadata, growths, context)
    answers = await metadata.create_partitions(
        [growth for growth in growths if growth[0] not in over_quota], validate_only=request.validate_only
    )
    asked = [growth[0] for growth in growths if growth[0] not in over_quota]
    by_name: dict[str, OttlaError | None] = dict(zip(asked, answers, strict=True))
    results: list[CreatePartitionsTopicResult] = []
    for name in often:
        refused = over_quota.get(name) or by_name.get(name, InvalidRequest("Duplicate topic name."))
        result = CreatePartitionsTopicResult(name=name)
        if refused is not None:
            result.error_code, result.error_message = refused.code, str(refused) or None
        results.append(result)
    return CreatePartitionsResponse(results=results)


Growth = tuple[TopicName, int, list[list[int]] | None]


def _growth(topic: CreatePartitionsTopic) -> Growth:
    placed = topic.assignments
    return TopicName(topic.name), topic.count, None if placed is None else [each.broker_ids for each in placed]


async def _over_quota(
    metadata: "MetadataView", growths: list[Growth], context: RequestContext
) -> dict[str, OttlaError]:
    """The topics for which a quota is used up; those that can grow use it."""
    metered = context.metered
    if metered is None or not metered.limits_changes:
        return {}
    refused: dict[str, OttlaError] = {}
    planned = await metadata.create_partitions(growths, validate_only=True)
    for (name, count, _), problem in zip(growths, planned, strict=True):
        topic = metadata.image.topics.get(name)
        if problem is None and topic is not None:
            strictly = context.api_version >= STRICT_QUOTA_SINCE
            over = metered.refusal(count - len(topic.partitions), strictly=strictly)
            if over is not None:
                refused[name] = over
    return refused
