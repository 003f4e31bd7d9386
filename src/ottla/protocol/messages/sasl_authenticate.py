"""SaslAuthenticate: a step of the SASL exchange (KIP-152).

1  how long the session lasts before the client has to authenticate again (KIP-368)
2  flexible
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16, Int64
from ottla.protocol.schema import Message, message, since


@message(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes


@message(ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)
