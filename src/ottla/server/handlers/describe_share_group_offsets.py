"""DescribeShareGroupOffsets (v0-v1): where share groups start (KIP-932), and how far they lag (KIP-1226).

A partition that a group has no state for starts at -1, whether there is such a group, topic and partition or not.
The lag counts the records that are not finished: those after the start that others have finished already are left out.
It is -1 where delivery has not begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinators.share_groups import TopicOffsets
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import GroupId, PartitionId, TopicName, TopicPartition
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.partition_ends import partition_ends
from ottla.server.share_group_requests import are_offered
from ottla.share.state import UNKNOWN_COUNT, UNKNOWN_START_OFFSET
from ottla.share.state_events import StateSummary
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.server.cluster_member import ClusterMember
    from ottla.slices import Slices


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    replicas: "ReplicaManager"
    share_groups: "ShareGroupCoordinator"
    slices: "Slices"
    cluster: "ClusterMember | None"


async def handle(
    parts: Parts, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=await parts.slices.each(partial(_describe, parts, context=context), request.groups)
    )


async def _describe(
    parts: Parts, asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=[])
    if not are_offered(parts.metadata):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    topics = None
    if asked.topics is not None:
        topics = {
            TopicName(topic.topic_name): [PartitionId(index) for index in topic.partitions] for topic in asked.topics
        }
    try:
        found = await parts.share_groups.describe_offsets(GroupId(asked.group_id), topics)
    except OttlaError as error:
        answer.error_code, answer.error_message = error.code, str(error)
        return answer
    counted = {
        TopicPartition(topic.topic, index)
        for topic in found
        for index, summary in topic.partitions
        if summary.start_offset != UNKNOWN_START_OFFSET and summary.complete_count != UNKNOWN_COUNT
    }
    ends = await partition_ends(counted, parts.metadata, parts.replicas, parts.cluster)
    answer.topics = await parts.slices.run(_topics(found, ends))
    return answer


def _topics(
    found: Iterable[TopicOffsets], ends: Mapping[TopicPartition, int | ErrorCode]
) -> Steps[list[DescribeShareGroupOffsetsResponseTopic]]:
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic in found:
        partitions: list[DescribeShareGroupOffsetsResponsePartition] = []
        for index, summary in topic.partitions:
            partitions.append(_partition(index, summary, ends.get(TopicPartition(topic.topic, index))))
            yield
        topics.append(
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return topics


def _partition(
    index: int, summary: StateSummary, end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """`end` is None for a partition whose finished records are not counted."""
    answer = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch
    )
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=0, leader_epoch=0, error_code=end, error_message=end.name
        )
    if end is not None:
        answer.lag = end - summary.start_offset - summary.complete_count
    return answer
