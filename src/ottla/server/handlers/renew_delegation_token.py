"""RenewDelegationToken (v1-v2): let a token live longer (KIP-48)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.security.delegation_tokens import renewed
from ottla.server.context import RequestContext
from ottla.server.token_requests import needed

if TYPE_CHECKING:
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView


async def handle(
    tokens: "DelegationTokens | None",
    metadata: "MetadataView",
    request: RenewDelegationTokenRequest,
    context: RequestContext,
) -> RenewDelegationTokenResponse:
    """The time at which the token ends now. Raises `ApiError`."""
    known = needed(tokens, metadata, context)
    token, now_ms = known.find(bytes(request.hmac)), known.now_ms()
    changed = renewed(token, context.principal, request.renew_period_ms, now_ms, known.lifetimes)
    await known.put(changed)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expires_ms)
