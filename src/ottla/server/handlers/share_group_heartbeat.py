"""ShareGroupHeartbeat (v1): a member of a share group (KIP-932) joins, lives, gets its assignment, leaves.

Errors that are visible in the request itself are refused here, in Kafka's words; the group decides the rest.
"""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, InvalidRequest
from ottla.groups.consumer.events import Partitions
from ottla.groups.share.events import JOINING, LEAVING, ShareHeartbeat
from ottla.ids import GroupId, MemberId, TopicName
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.server.context import RequestContext
from ottla.server.share_group_requests import are_offered

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.metadata.view import MetadataView


async def handle(
    metadata: "MetadataView",
    share_groups: "ShareGroupCoordinator",
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
) -> ShareGroupHeartbeatResponse:
    if not are_offered(metadata):
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    try:
        _check(request)
    except InvalidRequest as refused:
        return _refused(refused.code, str(refused))
    beat = await share_groups.heartbeat(
        ShareHeartbeat(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",  # as Java prints an address, and genuine tools show it
            topic_names=None
            if request.subscribed_topic_names is None
            else frozenset(TopicName(name) for name in request.subscribed_topic_names),
        )
    )
    if beat.error:
        return _refused(beat.error, beat.message)
    return ShareGroupHeartbeatResponse(
        member_id=beat.member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_interval_ms,
        assignment=None if beat.assignment is None else _assignment(beat.assignment),
    )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raises `InvalidRequest`."""
    for value, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise InvalidRequest(f"{name} can't be empty.")
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING:
        raise InvalidRequest("MemberEpoch is invalid.")


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in partitions.items()
        ]
    )


def _refused(error: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0)
