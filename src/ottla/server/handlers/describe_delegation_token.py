"""DescribeDelegationToken (v1-v3): the tokens of some owners, or all that the client may see (KIP-48, KIP-373)."""

from typing import TYPE_CHECKING

from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.security.authorization import Operation, ResourceType
from ottla.security.delegation_tokens import DelegationToken
from ottla.server.context import RequestContext
from ottla.server.token_requests import may, needed

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


async def handle(
    slices: "Slices",
    tokens: "DelegationTokens | None",
    acls: "Acls | None",
    metadata: "MetadataView",
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
) -> DescribeDelegationTokenResponse:
    """With their secrets, as in Kafka: the client's own tokens, and those that it may describe. Raises `ApiError`."""
    known = needed(tokens, metadata, context)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}

    def is_shown(token: DelegationToken) -> bool:
        return (owners is None or token.is_of_any(owners)) and (
            token.is_of(context.principal)
            or may(acls, context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or may(acls, context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        )

    shown: list[DescribedDelegationToken] = []
    for token in known.all():  # which any user may have made by the thousand
        if is_shown(token):
            shown.append(_described(token, known.secret(token)))
        await slices.pause()
    return DescribeDelegationTokenResponse(tokens=shown)


def _described(token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    (owner_type, _, owner), (requester_type, _, requester) = token.owner.partition(":"), token.requester.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, _, name in renewers
        ],
    )
