"""Metadata (v0-v13): brokers, controller, topics, and the leader of each partition.

A topic that is created automatically is in the same response; Kafka answers UNKNOWN_TOPIC_OR_PARTITION first and makes
the client ask again.

Until a controller has sent this broker the metadata, requests wait; after `KNOWN_WITHIN_S` the connection is closed,
and
clients ask another broker, or this one again. Upon an answer without brokers librdkafka gives up all that it knew.
"""

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final, cast
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

NULL_ASKS_FOR_ALL_SINCE: Final = 1
IDS_IN_REQUESTS_SINCE: Final = 12

# Sets of operations, a bit for each as KIP-430 numbers them. Without an authorizer all are allowed.
ALL_TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

KNOWN_WITHIN_S: Final = 2.0
NEVER_CREATED: Final = frozenset((TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC, CLUSTER_METADATA_TOPIC))
"""Topics that only their coordinators create, with settings of their own, or that are no topics at all."""


def handle(
    request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Answered at once, unless a topic has to be created first."""
    metadata = context.broker.metadata
    asked = request.topics
    if not metadata.is_known:
        return _once_known(request, context)
    if asked is None or (not asked and context.api_version < NULL_ASKS_FOR_ALL_SINCE):
        return context.broker.slices.start(_all_topics(request, context))
    by_id = any(topic.topic_id != NULL_UUID for topic in asked)
    if by_id and context.api_version < IDS_IN_REQUESTS_SINCE:
        return _refuse(request)
    if any(topic.name is None and topic.topic_id == NULL_UUID for topic in asked):
        return _refuse(request)
    if by_id:
        return context.broker.slices.start(_asked_for_by_id(request, context))
    missing = [
        TopicName(topic.name)
        for topic in asked
        if topic.name is not None and topic.name not in metadata.image.topics and topic.name not in NEVER_CREATED
    ]
    if missing and request.allow_auto_topic_creation and metadata.config.auto_create_topics_enable:
        return _create_and_respond(request, context, missing)
    return context.broker.slices.start(_asked_for(request, context, {}))


_OF_POLICIES: Final = frozenset({ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Refusals to create a topic that are answered as an unknown topic, as in Kafka: clients expect no other code here."""


async def until_known(context: RequestContext) -> None:
    """Wait until the metadata are those of the cluster. Raises `NotLeader` if no controller sends them."""
    if not await context.broker.metadata.until_known(KNOWN_WITHIN_S):
        raise NotLeader("no controller has spoken to this broker yet")


async def _once_known(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    await until_known(context)
    answer = handle(request, context)
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
    request: MetadataRequest, context: RequestContext, missing: list[TopicName]
) -> MetadataResponse:
    refused = await context.broker.metadata.ensure_topics(missing)
    return await context.broker.slices.run(_asked_for(request, context, refused))


def _all_topics(request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    answers: list[MetadataResponseTopic] = []
    for topic in context.broker.metadata.image.topics.values():
        answers.append(_found(topic, request, context))
        yield
    return _respond(request, context, answers)


def _asked_for(
    request: MetadataRequest, context: RequestContext, refused: Mapping[TopicName, OttlaError | None]
) -> Steps[MetadataResponse]:
    image = context.broker.metadata.image
    answers: list[MetadataResponseTopic] = []
    for name in dict.fromkeys(topic.name or "" for topic in request.topics or ()):
        yield
        topic = image.topics.get(TopicName(name))
        if topic is not None:
            answers.append(_found(topic, request, context))
            continue
        problem = refused.get(TopicName(name))
        code = None if problem is None or problem.code in _OF_POLICIES else problem.code
        answers.append(_missing(name, NULL_UUID, _why_missing(name) if code is None else code))
    return _respond(request, context, answers)


def _asked_for_by_id(request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    """A request by id (the Java consumer sends empty names along) is answered for those topics only, as in Kafka."""
    image = context.broker.metadata.image
    answers: list[MetadataResponseTopic] = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in request.topics or () if topic.topic_id != NULL_UUID):
        yield
        topic = image.topics_by_id.get(TopicId(topic_id))
        answers.append(
            _missing(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else _found(topic, request, context)
        )
    return _respond(request, context, answers)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopic as invalid:
        return invalid.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _respond(
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = context.broker.metadata.image
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


def _found(topic: TopicImage, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    """As it was encoded for others, unless its authorized operations are asked for."""
    image, listener, version = context.broker.metadata.image, context.listener, context.api_version
    if request.include_topic_authorized_operations:
        return describe(topic, image, listener, version)
    encoded = context.broker.metadata_topics.encoded(topic, image, listener, version)
    return cast("MetadataResponseTopic", encoded)  # takes its place in the list


def _missing(name: str | None, topic_id: UUID, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
