"""Delegation tokens: logins for jobs that never see a password (KIP-48, KIP-373). PURE."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.admin.errors import RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation
from ottla.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_AT_ONCE = -1
_USER = "User"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. `owner` is a principal such as `User:alice`; times are milliseconds since 1970.

    Clients log in by SCRAM with `token_id` for the user name and the HMAC in base64 for the password, and with
    `tokenauth="true"` in Java's JAAS line.
    """

    token_id: str
    owner: str
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    @property
    def secret(self) -> str:
        """The password of the token."""
        from base64 import b64encode

        return b64encode(self.hmac).decode()


def create_delegation_token(
    *, max_lifetime_ms: int = -1, renewers: Sequence[str] = (), owner: str | None = None
) -> Operation[DelegationToken]:
    """A new token of the caller, or of the user `owner` (`alice`). Raises `RequestRefused`.

    `max_lifetime_ms` -1: the broker's `delegation.token.max.lifetime.ms`. `renewers`: users that may renew it,
    besides the owner.
    """
    request = CreateDelegationTokenRequest(
        owner_principal_type="" if owner is None else _USER,
        owner_principal_name=owner or "",
        renewers=[CreatableRenewers(principal_type=_USER, principal_name=each) for each in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer: CreateDelegationTokenResponse = yield Ask(request)
    _check(answer.error_code, "no delegation token was created")
    return DelegationToken(
        answer.token_id,
        f"{answer.principal_type}:{answer.principal_name}",
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
        bytes(answer.hmac),
    )


def renew_delegation_token(hmac: bytes, *, period_ms: int = -1) -> Operation[int]:
    """Let a token be valid for longer; returns when it now expires, in milliseconds since 1970.

    `period_ms` -1: the broker's `delegation.token.expiry.time.ms`. Raises `RequestRefused`.
    """
    answer: RenewDelegationTokenResponse = yield Ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    _check(answer.error_code, "the delegation token was not renewed")
    return answer.expiry_timestamp_ms


def expire_delegation_token(hmac: bytes) -> Operation[None]:
    """End a token now. Raises `RequestRefused`."""
    answer: ExpireDelegationTokenResponse = yield Ask(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=_AT_ONCE)
    )
    _check(answer.error_code, "the delegation token was not ended")


def _check(code: int, what: str) -> None:
    if code:
        raise RequestRefused(f"{what}: {refusal(code)}", code)
