"""SaslHandshake: choose the SASL mechanism (KIP-43).

Version 0 is followed by bare tokens without any framing of Kafka's, version 1 by SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16
from ottla.protocol.schema import Message, message


@message(ApiKey.SASL_HANDSHAKE, versions=(0, 1))
class SaslHandshakeRequest(Message):
    mechanism: str


@message(ApiKey.SASL_HANDSHAKE, versions=(0, 1))
class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[str]
