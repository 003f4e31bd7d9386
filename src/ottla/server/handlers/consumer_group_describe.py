"""ConsumerGroupDescribe (v0-v1): state, epochs and members of consumer groups (KIP-848).

A group that is not there, or is of another kind, is described with GROUP_ID_NOT_FOUND.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.consumer.events import AssignedTopic, ConsumerMemberDescription
from ottla.ids import GroupId
from ottla.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from ottla.server.context import RequestContext
from ottla.server.handlers.consumer_group_heartbeat import is_offered
from ottla.server.handlers.describe_groups import allow_all

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that this handler uses."""

    config: "BrokerConfig"
    metadata: "MetadataView"
    groups: "GroupCoordinator"
    slices: "Slices"


async def handle(
    parts: Parts, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    if not is_offered(parts.config, parts.metadata):
        return ConsumerGroupDescribeResponse(
            groups=[_nothing(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in request.group_ids]
        )
    groups = await parts.slices.each(partial(_describe, parts, context=context), map(GroupId, request.group_ids))
    if request.include_authorized_operations:
        allow_all(groups)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(parts: Parts, group_id: GroupId, context: RequestContext) -> DescribedGroup:
    try:
        found = await parts.groups.describe_consumer_group(group_id)
    except OttlaError as error:
        return _nothing(group_id, error.code)
    if found.error:
        return _nothing(group_id, found.error, found.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=[_member(member) for member in found.members],
    )


def _member(member: ConsumerMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: tuple[AssignedTopic, ...]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.topic, partitions=list(topic.partitions))
            for topic in topics
        ]
    )


def _nothing(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
