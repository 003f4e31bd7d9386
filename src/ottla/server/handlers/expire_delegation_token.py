"""ExpireDelegationToken (v1-v2): end a token, now or earlier (KIP-48)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.security.delegation_tokens import expired
from ottla.server.context import RequestContext
from ottla.server.token_requests import needed

if TYPE_CHECKING:
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView


async def handle(
    tokens: "DelegationTokens | None",
    metadata: "MetadataView",
    request: ExpireDelegationTokenRequest,
    context: RequestContext,
) -> ExpireDelegationTokenResponse:
    """The time at which the token ends now. Raises `ApiError`."""
    known = needed(tokens, metadata, context)
    token, now_ms = known.find(bytes(request.hmac)), known.now_ms()
    changed = expired(token, context.principal, request.expiry_time_period_ms, now_ms)
    if changed is None:
        await known.remove(token.token_id)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
    await known.put(changed)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expires_ms)
