"""Envelope: a broker forwards a client's request to the controller, with the principal and address (KIP-590)."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Int16
from ottla.protocol.schema import Message, message


@message(ApiKey.ENVELOPE, versions=(0, 0), flexible=0)
class EnvelopeRequest(Message):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


@message(ApiKey.ENVELOPE, versions=(0, 0), flexible=0)
class EnvelopeResponse(Message):
    response_data: bytes | None = None
    error_code: Int16 = 0
