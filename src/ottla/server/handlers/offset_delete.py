"""OffsetDelete (v0): forget committed offsets of topics that the group does not read (KIP-496)."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.groups.events import DeleteOffsets, TopicPartitions
from ottla.ids import GroupId, PartitionId, TopicName
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.metadata.view import MetadataView


async def handle(
    metadata: "MetadataView", groups: "GroupCoordinator", request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    image = metadata.image
    wanted: list[TopicPartitions] = []
    accepted: list[list[OffsetDeleteResponsePartition]] = []
    answers: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        known = image.topics.get(TopicName(topic.name))
        count = 0 if known is None else len(known.partitions)
        indexes = [partition.partition_index for partition in topic.partitions]
        partitions = [
            OffsetDeleteResponsePartition(
                partition_index=index,
                error_code=ErrorCode.NONE if 0 <= index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for index in indexes
        ]
        answers.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        accepted.append([answer for answer in partitions if not answer.error_code])
        there = tuple(PartitionId(answer.partition_index) for answer in accepted[-1])
        wanted.append(TopicPartitions(TopicName(topic.name), there))
    deleted = await groups.delete_offsets(DeleteOffsets(GroupId(request.group_id), tuple(wanted)))
    if deleted.error:
        return OffsetDeleteResponse(error_code=deleted.error, topics=[])
    for partitions, (_, error) in zip(accepted, deleted.topics, strict=True):
        for answer in partitions:
            answer.error_code = error
    return OffsetDeleteResponse(topics=answers)
