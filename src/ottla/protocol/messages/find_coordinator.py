"""FindCoordinator: which broker coordinates a group (key type 0), a transactional id (1) or a share partition (2).

1  key type; error messages
3  flexible
4  several keys at once, answered in `coordinators` (KIP-699)
5  TRANSACTION_ABORTABLE (KIP-890)
6  share groups, whose key is "group:topic id:partition" (KIP-932)
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int8, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Message):
    key: str = since(until=3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: list[str] = since(4, default_factory=list)


@message(ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = since(until=3, default=0)
    error_message: str | None = since(1, until=3, default="", ignorable=True)
    node_id: Int32 = since(until=3, default=0)
    host: str = since(until=3, default="")
    port: Int32 = since(until=3, default=0)
    coordinators: list[Coordinator] = since(4, default_factory=list)


@struct
class Coordinator(Struct):
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = 0
    error_message: str | None = None
