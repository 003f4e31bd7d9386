"""SyncGroup (v0-v5): the leader sends the assignments, and every member gets its own. Followers wait for the leader.

Since v5 a member has to name its protocol (KIP-559).
"""

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.events import Sync, Synced
from ottla.ids import GroupId, InstanceId, MemberId
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator

PROTOCOL_SINCE: Final = 5


async def handle(groups: "GroupCoordinator", request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.api_version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    event = Sync(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={MemberId(share.member_id): share.assignment for share in request.assignments},
    )
    try:
        synced = await groups.sync(event)
    except OttlaError as error:
        synced = Synced(error.code)
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
