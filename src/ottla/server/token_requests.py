"""What the requests about delegation tokens have in common."""

from typing import TYPE_CHECKING

from ottla.errors import ApiError, ErrorCode
from ottla.security.authorization import Operation, ResourceType
from ottla.security.principals import ANONYMOUS
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.metadata.acls import Acls
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView


def needed(tokens: "DelegationTokens | None", metadata: "MetadataView", context: RequestContext) -> "DelegationTokens":
    """The tokens, for a client that has proved its name by something else. Raises `ApiError`."""
    check_channel(metadata, context)
    if tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled.")
    return tokens


def check_channel(metadata: "MetadataView", context: RequestContext) -> None:
    """Raise `ApiError` for a request about tokens in plain text, without a name, or by a token."""
    is_plain = not context.is_forwarded and metadata.config.security_protocols.get(context.listener) is None
    authentication = context.authentication
    is_by_token = context.is_by_token or (authentication is not None and authentication.is_by_token)
    if is_plain or context.principal == ANONYMOUS or is_by_token:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels.",
        )


def may(acls: "Acls | None", context: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Whether the client may do this; without an authorizer everybody may."""
    return acls is None or acls.authorizer.allows(context.principal, context.client_host, operation, kind, name)
