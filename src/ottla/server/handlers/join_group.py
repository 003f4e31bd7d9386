"""JoinGroup (v0-v9): enter a classic group or its next generation. The answer waits for the whole group.

Before v4 a new member is not sent back for its id; before v9 a returning static leader assigns again, since the
response
cannot tell it to skip that (KIP-814).
"""

from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.groups.events import Assignor, Join, Joined
from ottla.ids import GroupId, InstanceId, MemberId
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator

REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
NULL_PROTOCOL_NAME_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9


async def handle(groups: "GroupCoordinator", request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    version = context.api_version
    has_rebalance_timeout = version >= REBALANCE_TIMEOUT_SINCE and request.rebalance_timeout_ms >= 0
    event = Join(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        instance_id=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address, and genuine tools show it
        protocol_type=request.protocol_type,
        protocols=tuple(Assignor(protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        reason=request.reason or "",
        requires_member_id=version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
    )
    try:
        joined = await groups.join(event)
    except OttlaError as error:
        joined = Joined(error.code, event.member_id)
    no_protocol = None if version >= NULL_PROTOCOL_NAME_SINCE else ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=no_protocol if joined.protocol_name is None else joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )
