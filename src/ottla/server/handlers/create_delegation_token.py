"""CreateDelegationToken (v1-v3): a token with which others log in as the client, or as another owner (KIP-48, 373)."""

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.ids import uuid_to_text
from ottla.metadata.service import new_id
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.security.authorization import Operation, ResourceType
from ottla.security.delegation_tokens import new_token
from ottla.server.context import RequestContext
from ottla.server.token_requests import may, needed

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView

_USER = "User"


async def handle(
    tokens: "DelegationTokens | None",
    acls: "Acls | None",
    metadata: "MetadataView",
    request: CreateDelegationTokenRequest,
    context: RequestContext,
) -> CreateDelegationTokenResponse:
    """The token and its secret, once it is durable. Raises `ApiError`."""
    known = needed(tokens, metadata, context)
    requester = context.principal
    owner = (
        f"{request.owner_principal_type}:{request.owner_principal_name}" if request.owner_principal_name else requester
    )
    if owner != requester and not may(acls, context, Operation.CREATE_TOKENS, ResourceType.USER, owner):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed.")
    if not owner.startswith(f"{_USER}:") or any(each.principal_type != _USER for each in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported.")
    renewers = tuple(f"{_USER}:{renewer.principal_name}" for renewer in request.renewers)
    now_ms, token_id = known.now_ms(), uuid_to_text(new_id())
    token = new_token(token_id, owner, requester, renewers, request.max_lifetime_ms, now_ms, known.lifetimes)
    await known.put(token)
    return CreateDelegationTokenResponse(
        principal_type=_USER,
        principal_name=owner.partition(":")[2],
        token_requester_principal_type=_USER,
        token_requester_principal_name=requester.partition(":")[2],
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token_id,
        hmac=known.secret(token),
    )
