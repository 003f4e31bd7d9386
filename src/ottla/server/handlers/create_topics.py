"""CreateTopics (v2-v7): each topic on its own, all that pass in one commit.

The answer is given when the topics are durable, whatever the timeout: that is one commit away.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.cluster.commands import CreateTopic
from ottla.cluster.config_description import SettingsInForce
from ottla.cluster.controller import NewTopic
from ottla.errors import InvalidRequest, OttlaError
from ottla.ids import TopicName
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices

STRICT_QUOTA_SINCE: Final = 6
"""Clients understand that a change has to wait (KIP-599)."""


async def handle(
    metadata: "MetadataView", slices: "Slices", request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """A topic that is named twice is refused, once."""
    often = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if often[topic.name] == 1]
    created = await _create(metadata, [_new_topic(topic) for topic in wanted], request, context)
    in_force = SettingsInForce(metadata.image, metadata.config, metadata.static_config)
    answers = dict(zip((topic.name for topic in wanted), created, strict=True))

    def result(name: str) -> CreatableTopicResult:
        return _result(name, answers.get(name, InvalidRequest("Duplicate topic name.")), in_force)

    return CreateTopicsResponse(topics=await slices.map(result, often))


async def _create(
    metadata: "MetadataView", wanted: "Sequence[NewTopic]", request: CreateTopicsRequest, context: RequestContext
) -> "list[CreateTopic | OttlaError]":
    """Create topics as far as a quota allows it: those that can be created use it."""
    metered = context.metered
    if metered is None or not metered.limits_changes:
        return await metadata.create_topics(wanted, validate_only=request.validate_only)
    answers = await metadata.create_topics(wanted, validate_only=True)
    for at, planned in enumerate(answers):
        if isinstance(planned, CreateTopic):
            strictly = context.api_version >= STRICT_QUOTA_SINCE
            answers[at] = metered.refusal(len(planned.topic.partitions), strictly=strictly) or planned
    if request.validate_only:
        return answers
    allowed = [at for at, planned in enumerate(answers) if isinstance(planned, CreateTopic)]
    for at, answer in zip(allowed, await metadata.create_topics([wanted[at] for at in allowed]), strict=True):
        answers[at] = answer
    return answers


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        TopicName(topic.name),
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(name: str, answer: CreateTopic | OttlaError, in_force: SettingsInForce) -> CreatableTopicResult:
    if isinstance(answer, OttlaError):
        return CreatableTopicResult(name=name, error_code=answer.code, error_message=str(answer) or None)
    return CreatableTopicResult(
        name=name,
        topic_id=answer.topic.topic_id,
        num_partitions=len(answer.topic.partitions),
        replication_factor=answer.topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=described.setting.name,
                value=described.value,
                read_only=described.read_only,
                config_source=described.source,
                is_sensitive=described.setting.sensitive,
            )
            for described in in_force.topic(answer.configs, None)
        ],
    )
