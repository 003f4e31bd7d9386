"""LeaveGroup: members leave a classic group.

1  throttle time
3  several members at once, dynamic or static (KIP-345)
4  flexible
5  reason (KIP-800)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message):
    group_id: str
    member_id: str = since(until=2, default="")
    members: list[MemberIdentity] = since(3, default_factory=list)


@struct
class MemberIdentity(Struct):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = since(5, default=None, ignorable=True)


@message(ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3, default_factory=list)


@struct
class MemberResponse(Struct):
    member_id: str
    group_instance_id: str | None
    error_code: Int16 = 0
