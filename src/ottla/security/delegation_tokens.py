"""Delegation tokens: logins that a user hands to others, without the password (KIP-48, KIP-373). PURE.

A token's secret is the HMAC of its id with `delegation.token.secret.key`, so that no store has to keep it. Clients log
in by SCRAM, with the id for a name, the secret in base64 for a password, and `tokenauth=true`.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.errors import ApiError, ErrorCode


class DelegationToken(NamedTuple):
    """A token as it is stored. Principals are of the form `User:alice`; times are in milliseconds."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_of(self, principal: str) -> bool:
        """Whether a principal owns it, has requested it, or may renew it."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_of_any(self, principals: AbstractSet[str]) -> bool:
        """Likewise for any of several, which may be thousands."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))

    def is_over(self, now_ms: int) -> bool:
        """Whether nobody can log in with it any longer."""
        return min(self.max_ms, self.expires_ms) <= now_ms


class Lifetimes(NamedTuple):
    """In milliseconds: `delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    longest_ms: int
    renewal_ms: int


def secret_of(token_id: str, key: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(key.encode(), token_id.encode(), hashlib.sha512)


def password_of(token_id: str, key: str) -> str:
    """The secret as clients send it in SCRAM."""
    return b64encode(secret_of(token_id, key)).decode()


def new_token(
    token_id: str, owner: str, requester: str, renewers: tuple[str, ...], asked_ms: int, now_ms: int, times: Lifetimes
) -> DelegationToken:
    """A token from now on; `asked_ms` is the longest life that its requester wants, 0 or less for the broker's."""
    life_ms = times.longest_ms if asked_ms <= 0 else min(asked_ms, times.longest_ms)
    max_ms = now_ms + life_ms
    return DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, min(max_ms, now_ms + times.renewal_ms))


def renewed(token: DelegationToken, principal: str, asked_ms: int, now_ms: int, times: Lifetimes) -> DelegationToken:
    """The token with a later end. Raises `ApiError`."""
    _check(token, principal)
    if token.is_over(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")
    life_ms = times.renewal_ms if asked_ms < 0 else min(asked_ms, times.renewal_ms)
    return token._replace(expires_ms=min(token.max_ms, now_ms + life_ms))


def expired(token: DelegationToken, principal: str, asked_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with another end, None for one that ends now. Raises `ApiError`."""
    _check(token, principal)
    if asked_ms < 0:
        return None
    if token.is_over(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")
    return token._replace(expires_ms=min(token.max_ms, now_ms + asked_ms))


def _check(token: DelegationToken, principal: str) -> None:
    if not token.is_of(principal):
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Delegation Token can be renewed only by owner/renewers"
        )
