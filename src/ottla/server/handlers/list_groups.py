"""ListGroups (v0-v5): the groups that this broker coordinates, by state and type."""

from typing import Final

from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.server.context import RequestContext

SERVED_TYPE: Final = "classic"


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    types = {group_type.lower() for group_type in request.types_filter}
    if types and SERVED_TYPE not in types:
        return ListGroupsResponse(groups=[])
    listings = await context.broker.groups.list_groups(request.states_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=listing.group_id,
                protocol_type=listing.protocol_type,
                group_state=listing.state,
                group_type=listing.group_type,
            )
            for listing in listings
        ]
    )
