"""UnregisterBroker: forget a broker that does not come back (KIP-500). Flexible."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32
from ottla.protocol.schema import Message, message


@message(ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Message):
    broker_id: Int32


@message(ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None
