"""RenewDelegationToken: let a delegation token live longer (KIP-48).

2  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int32, Int64
from ottla.protocol.schema import Message, message


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest(Message):
    hmac: bytes
    renew_period_ms: Int64


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse(Message):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = 0
