"""ShareGroupDescribe (v1): state, epochs and members of share groups (KIP-932)."""

from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.share.events import ShareGroupDescription, ShareMemberDescription
from ottla.ids import GroupId
from ottla.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ottla.server.context import RequestContext
from ottla.server.handlers.describe_groups import allow_all
from ottla.server.share_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


async def handle(
    metadata: "MetadataView",
    share_groups: "ShareGroupCoordinator",
    slices: "Slices",
    request: ShareGroupDescribeRequest,
    context: RequestContext,
) -> ShareGroupDescribeResponse:
    groups = await slices.each(
        partial(_describe, metadata, share_groups, context=context), map(GroupId, request.group_ids)
    )
    if request.include_authorized_operations:
        allow_all(groups)
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(
    metadata: "MetadataView", share_groups: "ShareGroupCoordinator", group_id: GroupId, context: RequestContext
) -> DescribedGroup:
    if not are_offered(metadata):
        return _refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        described = await share_groups.describe(group_id)
    except OttlaError as error:
        return _refused(group_id, error.code)
    if described.error:
        return _refused(group_id, described.error, described.message)
    return _described(described)


def _described(group: ShareGroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
    )


def _member(member: ShareMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic.topic_id, topic_name=topic.topic, partitions=list(topic.partitions))
                for topic in member.assignment
            ]
        ),
    )


def _refused(group_id: GroupId, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
