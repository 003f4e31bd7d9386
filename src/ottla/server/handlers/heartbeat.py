"""Heartbeat (v0-v4): a member of a classic group is alive."""

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.groups.events import Heartbeat
from ottla.ids import GroupId, InstanceId, MemberId
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.context import Deferred, RequestContext, when_done

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator


def handle(
    groups: "GroupCoordinator", request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Deferred[HeartbeatResponse]:
    event = Heartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        generation=request.generation_id,
    )
    return when_done(groups.heartbeat(event), _response)


def _response(verdict: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=verdict)
