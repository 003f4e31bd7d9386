"""BrokerHeartbeat: a broker reports to the active controller that it is alive, and how far it has read (KIP-631).

v1 failed log directories (KIP-858), v2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message, since


@message(ApiKey.BROKER_HEARTBEAT, versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest(Message):
    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[UUID] = since(1, tag=0, default_factory=list)
    cordoned_log_dirs: list[UUID] | None = since(2, tag=1, default=None)


@message(ApiKey.BROKER_HEARTBEAT, versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
