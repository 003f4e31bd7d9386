"""DeleteGroups (v0-v2): remove empty groups and their offsets (KIP-229)."""

from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.ids import GroupId
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.slices import Slices


async def handle(
    share_groups: "ShareGroupCoordinator", slices: "Slices", request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)  # a group named twice is deleted, and answered, once
    delete = partial(_delete, share_groups, context=context)
    return DeleteGroupsResponse(results=await slices.each(delete, map(GroupId, names)))


async def _delete(
    share_groups: "ShareGroupCoordinator", group_id: GroupId, context: RequestContext
) -> DeletableGroupResult:
    try:
        code = await share_groups.delete_group(group_id)
    except OttlaError as error:
        code = error.code
    return DeletableGroupResult(group_id=group_id, error_code=code)
