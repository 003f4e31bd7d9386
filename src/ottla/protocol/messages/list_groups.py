"""ListGroups: the groups that a broker coordinates.

1  throttle time
3  flexible
4  state, and a filter by it (KIP-518)
5  type, and a filter by it (KIP-848)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3)
class ListGroupsRequest(Message):
    states_filter: list[str] = since(4, default_factory=list)
    types_filter: list[str] = since(5, default_factory=list)


@message(ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3)
class ListGroupsResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    groups: list[ListedGroup]


@struct
class ListedGroup(Struct):
    group_id: str
    protocol_type: str
    group_state: str = since(4, default="", ignorable=True)
    group_type: str = since(5, default="", ignorable=True)
