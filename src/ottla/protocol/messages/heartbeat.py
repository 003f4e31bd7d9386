"""Heartbeat: a member of a classic group is alive; REBALANCE_IN_PROGRESS makes it join again.

1  throttle time
3  static members (KIP-345)
4  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, message, since


@message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = since(3, default=None)


@message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
class HeartbeatResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
