"""DeleteGroups (v0-v2): remove empty groups and their offsets (KIP-229)."""

from functools import partial

from ottla.errors import OttlaError
from ottla.ids import GroupId
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.server.context import RequestContext


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)  # a group named twice is deleted, and answered, once
    delete = partial(_delete, context=context)
    return DeleteGroupsResponse(results=await context.broker.slices.each(delete, map(GroupId, names)))


async def _delete(group_id: GroupId, context: RequestContext) -> DeletableGroupResult:
    try:
        code = await context.broker.share_groups.delete_group(group_id)
    except OttlaError as error:
        code = error.code
    return DeletableGroupResult(group_id=group_id, error_code=code)
