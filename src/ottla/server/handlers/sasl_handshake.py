"""SaslHandshake (v0-v1): choose a mechanism. Version 0 is followed by bare tokens, version 1 by SaslAuthenticate."""

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.context import RequestContext


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """The enabled mechanisms; a listener without SASL answers ILLEGAL_SASL_STATE, as in Kafka."""
    authentication = context.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    enabled = list(authentication.enabled)
    try:
        authentication.begin(request.mechanism, bare_tokens=context.api_version == 0)
    except ApiError as refused:
        return SaslHandshakeResponse(error_code=refused.code, mechanisms=enabled)
    return SaslHandshakeResponse(mechanisms=enabled)
