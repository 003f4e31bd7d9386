"""OffsetCommit (v2-v10): store the positions of a group.

Offsets are kept with the id of their topic whatever the version, so that a topic made anew under an old name starts
without them.
"""

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.events import CommitOffsets, OffsetsCommitted, OffsetToCommit
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, TopicId, TopicName
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.metadata.view import MetadataView

GROUP_ID_NOT_FOUND_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10


async def handle(
    metadata: "MetadataView", groups: "GroupCoordinator", request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    image = metadata.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    to_commit: list[OffsetToCommit] = []
    accepted: list[OffsetCommitResponsePartition] = []
    answers: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        if by_id:
            known, error = image.topics_by_id.get(TopicId(topic.topic_id)), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known, error = image.topics.get(TopicName(topic.name)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions: list[OffsetCommitResponsePartition] = []
        for requested in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=requested.partition_index)
            partitions.append(answer)
            if known is None:
                answer.error_code = error
            elif not 0 <= requested.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                accepted.append(answer)
                to_commit.append(
                    OffsetToCommit(
                        known.name,
                        PartitionId(requested.partition_index),
                        requested.committed_offset,
                        requested.committed_metadata or "",
                        requested.committed_leader_epoch,
                        known.topic_id,
                    )
                )
        answers.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    if to_commit:
        committed = await _commit(groups, request, context, tuple(to_commit))
        for answer, outcome in zip(accepted, committed.errors, strict=True):
            answer.error_code = outcome
    return OffsetCommitResponse(topics=answers)


async def _commit(
    groups: "GroupCoordinator",
    request: OffsetCommitRequest,
    context: RequestContext,
    to_commit: tuple[OffsetToCommit, ...],
) -> OffsetsCommitted:
    event = CommitOffsets(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        generation=request.generation_id_or_member_epoch,
        offsets=to_commit,
        retention_ms=request.retention_time_ms,
        knows_member_epochs=context.api_version >= GROUP_ID_NOT_FOUND_SINCE,
    )
    try:
        return await groups.commit_offsets(event)
    except OttlaError as error:
        return OffsetsCommitted((error.code,) * len(to_commit))
