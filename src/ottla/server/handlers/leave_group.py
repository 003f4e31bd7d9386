"""LeaveGroup (v0-v5): members leave a classic group; one before v3, several since (KIP-345)."""

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.groups.events import Leave, LeavingMember
from ottla.ids import GroupId, InstanceId, MemberId
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator

SEVERAL_SINCE: Final = 3


async def handle(groups: "GroupCoordinator", request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    alone = context.api_version < SEVERAL_SINCE
    if alone:
        leaving: tuple[LeavingMember, ...] = (LeavingMember(MemberId(request.member_id)),)
    else:
        leaving = tuple(
            LeavingMember(
                MemberId(member.member_id),
                None if member.group_instance_id is None else InstanceId(member.group_instance_id),
                member.reason or "",
            )
            for member in request.members
        )
    left = await groups.leave(Leave(GroupId(request.group_id), leaving))
    return LeaveGroupResponse(
        error_code=left.errors[0] if alone else ErrorCode.NONE,
        members=[]
        if alone
        else [
            MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=error)
            for member, error in zip(leaving, left.errors, strict=True)
        ],
    )
