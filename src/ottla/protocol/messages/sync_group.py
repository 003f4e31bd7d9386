"""SyncGroup: the leader of a classic group hands in the assignment, every member gets its part.

1  throttle time
3  static members (KIP-345)
4  flexible
5  protocol type and name, for checking (KIP-559)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4)
class SyncGroupRequest(Message):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)
    protocol_type: str | None = since(5, default=None, ignorable=True)
    protocol_name: str | None = since(5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str
    assignment: bytes


@message(ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4)
class SyncGroupResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    protocol_type: str | None = since(5, default=None, ignorable=True)
    protocol_name: str | None = since(5, default=None, ignorable=True)
    assignment: bytes
