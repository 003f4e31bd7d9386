"""DescribeGroups (v0-v6): state, protocol and members of classic groups.

A group that is not there, or of another kind, is described as dead; since v6 with GROUP_ID_NOT_FOUND (KIP-1043).
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, OttlaError
from ottla.groups.classic.states import GroupState
from ottla.ids import GroupId
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.slices import Slices

GROUP_ID_NOT_FOUND_SINCE: Final = 6
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS (KIP-430): without an authorizer all are allowed."""


def allow_all(described: Iterable[Any]) -> None:
    """Name all operations as allowed, in the descriptions of groups of any kind that could be described."""
    for group in described:
        if not group.error_code:
            group.authorized_operations = ALL_OPERATIONS


async def handle(
    groups: "GroupCoordinator", slices: "Slices", request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    described = await slices.each(partial(_describe, groups, context=context), map(GroupId, request.groups))
    if request.include_authorized_operations:
        allow_all(described)
    return DescribeGroupsResponse(groups=described)


async def _describe(groups: "GroupCoordinator", group_id: GroupId, context: RequestContext) -> DescribedGroup:
    try:
        found = await groups.describe_group(group_id)
    except OttlaError as error:
        return _nothing(group_id, error.code, "")
    if found.state is GroupState.DEAD and context.api_version >= GROUP_ID_NOT_FOUND_SINCE:
        group = _nothing(group_id, ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD.value)
        problem = "is not a classic group" if found.is_of_another_kind else "not found"
        group.error_message = f"Group {group_id} {problem}."
        return group
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in found.members
        ],
    )


def _nothing(group_id: GroupId, code: ErrorCode, state: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )
