"""Metadata (v0-v13): brokers, controller, topics, and the leader of each partition.

A topic that is created automatically is in the same response; Kafka answers UNKNOWN_TOPIC_OR_PARTITION first and makes
the client ask again.

Until a controller has sent this broker the metadata, requests wait; after `KNOWN_WITHIN_S` the connection is closed,
and
clients ask another broker, or this one again. Upon an answer without brokers librdkafka gives up all that it knew.
"""

from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from ottla.cluster.controller import CLUSTER_METADATA_TOPIC, check_topic_name
from ottla.cluster.image import (
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerImage,
    MetadataImage,
    TopicImage,
)
from ottla.errors import ErrorCode, InvalidTopic, NotLeader, OttlaError
from ottla.ids import TopicId, TopicName
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.server.context import RequestContext
from ottla.server.endpoints import address_of
from ottla.server.metadata_topics import describe
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.metadata_topics import MetadataTopics
    from ottla.slices import Slices

NULL_ASKS_FOR_ALL_SINCE: Final = 1
IDS_IN_REQUESTS_SINCE: Final = 12

# Sets of operations, a bit for each as KIP-430 numbers them. Without an authorizer all are allowed.
ALL_TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

KNOWN_WITHIN_S: Final = 2.0
NEVER_CREATED: Final = frozenset((TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC, CLUSTER_METADATA_TOPIC))
"""Topics that only their coordinators create, with settings of their own, or that are no topics at all."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    metadata_topics: "MetadataTopics"
    slices: "Slices"


def handle(
    parts: Parts, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answered at once, unless a topic has to be created first."""
    metadata = parts.metadata
    asked = request.topics
    if not metadata.is_known:
        return _once_known(parts, request, context)
    if asked is None or (not asked and context.api_version < NULL_ASKS_FOR_ALL_SINCE):
        return parts.slices.start(_all_topics(parts, request, context))
    by_id = any(topic.topic_id != NULL_UUID for topic in asked)
    if by_id and context.api_version < IDS_IN_REQUESTS_SINCE:
        return _refuse(request)
    if any(topic.name is None and topic.topic_id == NULL_UUID for topic in asked):
        return _refuse(request)
    if by_id:
        return parts.slices.start(_asked_for_by_id(parts, request, context))
    missing = [
        TopicName(topic.name)
        for topic in asked
        if topic.name is not None and topic.name not in metadata.image.topics and topic.name not in NEVER_CREATED
    ]
    if missing and request.allow_auto_topic_creation and metadata.config.auto_create_topics_enable:
        return _create_and_respond(parts, request, context, missing)
    return parts.slices.start(_asked_for(parts, request, context, {}))


_OF_POLICIES: Final = frozenset(
    {ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
)
"""Refusals to create a topic that are answered as an unknown topic, as in Kafka: clients expect no other code here."""


async def until_known(metadata: "MetadataView") -> None:
    """Wait until the metadata are those of the cluster. Raises `NotLeader` if no controller sends them."""
    if not await metadata.until_known(KNOWN_WITHIN_S):
        raise NotLeader("no controller has spoken to this broker yet")


async def _once_known(parts: Parts, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    await until_known(parts.metadata)
    answer = handle(parts, request, context)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _refuse(request: MetadataRequest) -> MetadataResponse:
    """Topics asked for by neither name nor id, or by id before version 12."""
    code = ErrorCode.INVALID_REQUEST
    return MetadataResponse(
        brokers=[],
        topics=[_missing(topic.name or "", topic.topic_id, code) for topic in request.topics or ()],
        error_code=code,
    )


async def _create_and_respond(
    parts: Parts, request: MetadataRequest, context: RequestContext, missing: list[TopicName]
) -> MetadataResponse:
    over_quota: dict[TopicName, OttlaError | None] = {}
    if context.metered is not None and context.metered.limits_changes:
        partitions = parts.metadata.config.num_partitions
        over_quota = {
            name: refusal
            for name in missing
            if (refusal := context.metered.refusal(partitions, strictly=True)) is not None
        }
    refused = await parts.metadata.ensure_topics([name for name in missing if name not in over_quota])
    refused.update(over_quota)
    return await parts.slices.run(_asked_for(parts, request, context, refused))


def _all_topics(parts: Parts, request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    answers: list[MetadataResponseTopic] = []
    for topic in parts.metadata.image.topics.values():
        answers.append(_found(parts, topic, request, context))
        yield
    return _respond(parts, request, context, answers)


def _asked_for(
    parts: Parts, request: MetadataRequest, context: RequestContext, refused: Mapping[TopicName, OttlaError | None]
) -> Steps[MetadataResponse]:
    image = parts.metadata.image
    answers: list[MetadataResponseTopic] = []
    for name in dict.fromkeys(topic.name or "" for topic in request.topics or ()):
        yield
        topic = image.topics.get(TopicName(name))
        if topic is not None:
            answers.append(_found(parts, topic, request, context))
            continue
        problem = refused.get(TopicName(name))
        code = None if problem is None or problem.code in _OF_POLICIES else problem.code
        answers.append(_missing(name, NULL_UUID, _why_missing(name) if code is None else code))
    return _respond(parts, request, context, answers)


def _asked_for_by_id(parts: Parts, request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    """A request by id (the Java consumer sends empty names along) is answered for those topics only, as in Kafka."""
    image = parts.metadata.image
    answers: list[MetadataResponseTopic] = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in request.topics or () if topic.topic_id != NULL_UUID):
        yield
        topic = image.topics_by_id.get(TopicId(topic_id))
        answers.append(
            _missing(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            if topic is None
            else _found(parts, topic, request, context)
        )
    return _respond(parts, request, context, answers)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopic as invalid:
        return invalid.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _respond(
    parts: Parts, request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = parts.metadata.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=host, port=port, rack=broker.rack)
            for broker, host, port in brokers_at(image, context)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    return response


def brokers_at(image: MetadataImage, context: RequestContext) -> Iterator[tuple[BrokerImage, str, int]]:
    """The living brokers that have the listener this client uses, each with the host and port to dial."""
    for broker in image.brokers.values():
        address = address_of(broker, context)
        if address is not None:
            yield broker, *address


def _found(parts: Parts, topic: TopicImage, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    """As it was encoded for others, unless its authorized operations are asked for."""
    image, listener, version = parts.metadata.image, context.listener, context.api_version
    if request.include_topic_authorized_operations:
        return describe(topic, image, listener, version)
    encoded = parts.metadata_topics.encoded(topic, image, listener, version)
    return cast("MetadataResponseTopic", encoded)  # takes its place in the list


def _missing(name: str | None, topic_id: UUID, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
