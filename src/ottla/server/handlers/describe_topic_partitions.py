"""DescribeTopicPartitions (v0): topics in the order of their names, in pieces of bounded size (KIP-966).

Eligible leader replicas, and the last leader of a partition without a leader, are returned where they are elected:
under a quorum of controllers, with `eligible.leader.replicas.version` 1.
"""

from typing import TYPE_CHECKING

from ottla.cluster.controller import check_topic_name
from ottla.cluster.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.errors import ErrorCode, InvalidRequest, InvalidTopic
from ottla.ids import TopicName
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.server.context import RequestContext
from ottla.server.handlers.metadata import ALL_TOPIC_OPERATIONS
from ottla.server.metadata_topics import partition_error
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


async def handle(
    config: "BrokerConfig",
    metadata: "MetadataView",
    slices: "Slices",
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> DescribeTopicPartitionsResponse:
    """No topics ask for all. The cursor of one answer is where the next begins."""
    return await slices.run(_answer(config, metadata, request, context))


def _answer(
    config: "BrokerConfig", metadata: "MetadataView", request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    image = metadata.image
    cursor = request.cursor
    first_name = "" if cursor is None else cursor.topic_name
    asked = [topic.name for topic in request.topics]
    names = sorted({name for name in asked or image.topics if name >= first_name})
    try:
        if cursor is not None and asked and cursor.topic_name not in names:
            raise InvalidRequest("the cursor's topic is not among the topics asked for")
        if cursor is not None and cursor.partition_index < 0:
            raise InvalidRequest("the cursor's partition is negative")
    except InvalidRequest as refused:
        return DescribeTopicPartitionsResponse(topics=[_missing(name, refused.code) for name in asked])

    room = max(1, min(config.max_request_partition_size_limit, request.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    following: Cursor | None = None
    for name in names:
        yield
        if room == 0:
            following = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(TopicName(name))
        if topic is None:
            reason = _why_missing(name) if metadata.is_known else ErrorCode.LEADER_NOT_AVAILABLE
            topics.append(_missing(name, reason, ALL_TOPIC_OPERATIONS))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        shown = topic.partitions[start : start + room]
        room -= len(shown)
        topics.append(_found(image, topic, shown, context))
        if start + len(shown) < len(topic.partitions):
            following = Cursor(topic_name=name, partition_index=start + len(shown))
            break
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopic as invalid:
        return invalid.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _missing(name: str, error: ErrorCode, operations: int = -0x8000_0000) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_id=NULL_UUID, partitions=[], topic_authorized_operations=operations
    )


def _found(
    image: MetadataImage, topic: TopicImage, shown: tuple[PartitionImage, ...], context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=partition_error(image.brokers.get(partition.leader), context.listener),
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.eligible) if image.elects_eligible else [],
                last_known_elr=[partition.last_known_leader] if _has_last_leader(image, partition) else [],
                offline_replicas=list(image.offline_replicas(topic.name, partition)),
            )
            for partition in shown
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _has_last_leader(image: MetadataImage, partition: PartitionImage) -> bool:
    return image.elects_eligible and partition.is_abandoned and partition.last_known_leader != NO_LEADER
