"""ListGroups (v0-v5): the groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.coordinators.group_coordinator import GroupCoordinator


async def handle(groups: "GroupCoordinator", request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    listings = await groups.list_groups(request.states_filter, request.types_filter)
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
