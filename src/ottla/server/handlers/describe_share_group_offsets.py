"""DescribeShareGroupOffsets (v0): where share groups start in their partitions (KIP-932).

A partition that a group has no state for starts at -1, whether there is such a group, topic and partition or not.
"""

from ottla.errors import ErrorCode, OttlaError
from ottla.ids import GroupId, PartitionId, TopicName
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.server.context import RequestContext
from ottla.server.share_group_requests import are_offered


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[await _describe(group, context) for group in request.groups])


async def _describe(
    asked: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=[])
    if not are_offered(context.broker):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    topics = None
    if asked.topics is not None:
        topics = {
            TopicName(topic.topic_name): [PartitionId(index) for index in topic.partitions] for topic in asked.topics
        }
    try:
        found = await context.broker.share_groups.describe_offsets(GroupId(asked.group_id), topics)
    except OttlaError as error:
        answer.error_code, answer.error_message = error.code, str(error)
        return answer
    answer.topics = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch
                )
                for index, summary in topic.partitions
            ],
        )
        for topic in found
    ]
    return answer
