"""OffsetFetch (v1-v10): the committed positions of one group, since v8 of several.

Before v2 an error stands with every partition, since then with the group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.groups.events import FetchedOffset, FetchOffsets, TopicPartitions
from ottla.ids import ZERO_TOPIC_ID, GroupId, MemberId, PartitionId, TopicId, TopicName
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.server.context import RequestContext
from ottla.slices import Steps

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices

GROUP_ERROR_SINCE: Final = 2
SEVERAL_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
PARTITIONS_PER_STEP: Final = 64


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    metadata: "MetadataView"
    groups: "GroupCoordinator"
    slices: "Slices"


async def handle(parts: Parts, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= SEVERAL_SINCE:
        fetch_group = partial(_fetch_group, parts, require_stable=request.require_stable, context=context)
        groups = await parts.slices.each(fetch_group, request.groups)
        return OffsetFetchResponse(groups=groups)
    return await _fetch_one(parts, request, context)


async def _fetch_one(parts: Parts, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    wanted = None
    if request.topics is not None:
        wanted = [_wanted(parts, TopicName(topic.name), topic.partition_indexes, context) for topic in request.topics]
    try:
        found = await _fetch(parts, request.group_id, wanted, request.require_stable, context)
    except OttlaError as error:
        if context.api_version >= GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=error.code)
        found = [
            (topic.topic, [FetchedOffset(partition, error=error.code) for partition in topic.partitions])
            for topic in wanted or ()
        ]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=offset.partition,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=offset.error,
                    )
                    for offset in offsets
                ],
            )
            for name, offsets in found
        ]
    )


async def _fetch_group(
    parts: Parts, group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
) -> OffsetFetchResponseGroup:
    slices = parts.slices
    image = parts.metadata.image
    topics: list[OffsetFetchResponseTopics] = []
    wanted: list[TopicPartitions] | None = None if group.topics is None else []
    for topic in group.topics or ():
        await slices.pause()
        name: TopicName | None = TopicName(topic.name)
        if context.api_version >= TOPIC_IDS_SINCE:
            known = image.topics_by_id.get(TopicId(topic.topic_id))
            name = None if known is None else known.name
        if name is None:
            unknown = (
                FetchedOffset(PartitionId(index), error=ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
            )
            topics.append(await slices.run(_answer(TopicName(""), topic.topic_id, unknown)))
        elif wanted is not None:
            wanted.append(_wanted(parts, name, topic.partition_indexes, context))
    try:
        found = await _fetch(
            parts, group.group_id, wanted, require_stable, context, group.member_id, group.member_epoch
        )
    except OttlaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    for name, offsets in found:
        known = image.topics.get(name)
        topics.append(await slices.run(_answer(name, ZERO_TOPIC_ID if known is None else known.topic_id, offsets)))
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _wanted(parts: Parts, name: TopicName, indexes: Sequence[int], context: RequestContext) -> TopicPartitions:
    known = parts.metadata.image.topics.get(name)
    topic_id = ZERO_TOPIC_ID if known is None else known.topic_id
    return TopicPartitions(name, tuple(PartitionId(index) for index in indexes), topic_id)


async def _fetch(
    parts: Parts,
    group_id: str,
    wanted: Sequence[TopicPartitions] | None,
    require_stable: bool,
    context: RequestContext,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> list[tuple[TopicName, Sequence[FetchedOffset]]]:
    event = FetchOffsets(
        GroupId(group_id),
        None if wanted is None else tuple(wanted),
        require_stable,
        None if member_id is None else MemberId(member_id),
        member_epoch,
    )
    fetched = await parts.groups.fetch_offsets(event)
    if fetched.error:
        raise ApiError(fetched.error, f"{member_id} is no member of group {group_id} in epoch {member_epoch}")
    return [(topic.topic, topic.offsets) for topic in fetched.topics]


def _answer(name: TopicName, topic_id: UUID, offsets: Iterable[FetchedOffset]) -> Steps[OffsetFetchResponseTopics]:
    partitions: list[OffsetFetchResponsePartitions] = []
    for offset in offsets:
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=offset.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
                error_code=offset.error,
            )
        )
        if len(partitions) % PARTITIONS_PER_STEP == 0:
            yield
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
