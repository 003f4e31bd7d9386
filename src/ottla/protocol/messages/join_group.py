"""JoinGroup: enter a classic consumer group, or its next generation.

The response waits until the whole group has joined. Only the leader receives the list of members.

    1  rebalance timeout of its own (KIP-62)        6  flexible
    4  a new member receives its id and has to       7  protocol type in the answer (KIP-559)
       ask again: MEMBER_ID_REQUIRED (KIP-394)      8  reason (KIP-800)
    5  static members (KIP-345)                     9  the leader may keep the assignment (KIP-814)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6)
class JoinGroupRequest(Message):
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: str
    group_instance_id: str | None = since(5, default=None)
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None = since(8, default=None, ignorable=True)


@struct
class JoinGroupRequestProtocol(Struct):
    name: str
    metadata: bytes


@message(ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6)
class JoinGroupResponse(Message):
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: str | None = since(7, default=None, ignorable=True)
    protocol_name: str | None = since(nullable_since=7)
    leader: str
    skip_assignment: bool = since(9, default=False)
    member_id: str
    members: list[JoinGroupResponseMember]


@struct
class JoinGroupResponseMember(Struct):
    member_id: str
    group_instance_id: str | None = since(5, default=None, ignorable=True)
    metadata: bytes
