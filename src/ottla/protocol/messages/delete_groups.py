"""DeleteGroups: remove empty groups and their offsets (KIP-229).

2  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, struct


@message(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2)
class DeleteGroupsRequest(Message):
    groups_names: list[str]


@message(ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2)
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


@struct
class DeletableGroupResult(Struct):
    group_id: str
    error_code: Int16 = 0
