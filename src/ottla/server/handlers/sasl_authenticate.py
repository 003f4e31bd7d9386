"""SaslAuthenticate (v0-v2): a token of the client, and the broker's challenge (KIP-152). A refused login is answered
after a pause, and its connection closed."""

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.security.sasl import AuthenticationRefused
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.audit.audit_log import AuditLog

log = logging.getLogger(__name__)


async def handle(
    metadata: "MetadataView", audit: "AuditLog | None", request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """The challenge, and how long the login lasts once it has succeeded (KIP-368)."""
    authentication = context.authentication
    if authentication is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    missing = authentication.missing(bytes(request.auth_bytes))
    if missing is not None:
        release = context.hold_connection()
        try:
            await missing
        finally:
            release()
    try:
        challenge = authentication.respond(bytes(request.auth_bytes))
    except ApiError as refused:
        log.warning(
            "%s:%d at listener %s: %s",
            context.client_host,
            context.client_port,
            context.listener,
            _reasons(refused),
        )
        if audit is not None:
            audit.not_authenticated(context, authentication.claimed, authentication.mechanism, _reasons(refused))
        context.hold_connection()  # for ever: the answer is its last
        await asyncio.sleep(metadata.config.connection_failed_authentication_delay_ms / 1000)
        context.close_connection_when_answered()
        return SaslAuthenticateResponse(error_code=refused.code, error_message=str(refused), auth_bytes=b"")
    if authentication.principal is not None:
        context.authenticated()
        if audit is not None and authentication.is_complete:
            audit.authenticated(context, authentication.principal, authentication.mechanism)
    return SaslAuthenticateResponse(auth_bytes=challenge, session_lifetime_ms=authentication.session_lifetime_ms)


def _reasons(refused: ApiError) -> str:
    """What the client is answered, and what only the log has."""
    known = refused.__cause__.__cause__ if refused.__cause__ is not None else None
    return f"{refused}: {known}" if isinstance(known, AuthenticationRefused) else str(refused)
