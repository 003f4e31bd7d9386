"""Logins by OpenID Connect: the id token names the user, and the access token logs in at the brokers.

Tokens are kept in memory while their user is logged in. A session ends with its access token, unless the provider has
given a refresh token: the access token is then renewed before it ends.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.client.errors import AuthenticationFailed, TlsFailed
from ottla.client.tokens import expiry_s
from ottla.console.access.logins import WAIT_S, LoginRefused, Logins
from ottla.console.access.openid_flow import (
    Attempts,
    LoginProblem,
    address_of,
    check_claims,
    code_of,
    identity_of,
)
from ottla.console.access.openid_provider import OpenIdProvider, ProviderSilent, Tokens
from ottla.console.access.roles import Role
from ottla.console.access.sessions import Session, Sessions
from ottla.console.access.viewer import Viewer

MECHANISM: Final = "OAUTHBEARER"
BEGIN: Final = "/login/oidc"
CALLBACK: Final = "/login/oidc/callback"
RENEWED_AT: Final = 0.6
"""The part of its life after which a token is renewed. The client library asks for another one at four fifths."""


class UserToken:
    """The access token of one session. `supply` may be called by any thread."""

    def __init__(self, subject: str) -> None:
        """`subject`: the provider's name of the user. It has no token yet."""
        self.subject: Final = subject
        self.refresh: str | None = None
        self.renew_at_s = 0.0
        self._current = ("", 0.0)

    def take(self, tokens: Tokens, end_s: float, now_s: float) -> None:
        """Use these from now on; times are in seconds since 1970.

        A provider that gives no new refresh token lets the old one be used again.
        """
        self.refresh = tokens.refresh or self.refresh
        self.renew_at_s = now_s + RENEWED_AT * (end_s - now_s)
        self._current = (tokens.access, end_s)

    def forget(self) -> None:
        """Supply nothing any longer."""
        self.refresh, self._current = None, ("", 0.0)

    @property
    def end_s(self) -> float:
        """Since 1970."""
        return self._current[1]

    def supply(self, _: str) -> tuple[str, float]:
        """The token and its end, as client libraries ask for it. Raises AuthenticationFailed after its end."""
        token, end_s = self._current
        if end_s <= time.time():
            raise AuthenticationFailed("the user's token has ended: log in again")
        return token, end_s


class OpenIdLogins:
    """Leads users to the provider, and makes sessions of what it answers. On one event loop."""

    def __init__(
        self,
        provider: OpenIdProvider,
        logins: Logins,
        sessions: Sessions,
        now: Callable[[], float],
        base: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`now`: seconds of a monotonic clock; `wall`: since 1970. `base`: where browsers reach the console."""
        self._provider = provider
        self._settings = provider.settings
        self._logins = logins
        self._sessions = sessions
        self._now = now
        self._wall = wall
        self.base: Final = base
        self._attempts = Attempts(now)
        self._tokens: dict[Session, UserToken] = {}

    @property
    def name(self) -> str:
        """The provider's, as users know it."""
        return urlsplit(self._settings.issuer).hostname or self._settings.issuer

    def close(self) -> None:
        """Ask the provider nothing any longer."""
        self._provider.close()

    async def begin(self, following: str) -> tuple[str, str]:
        """The cookie of a new login, and the provider's address. Raises ProviderSilent."""
        found = await self._provider.addresses()
        attempt = self._attempts.begin(following)
        own = self._settings
        return attempt.cookie, address_of(found.authorization, attempt, own.client_id, self.base + CALLBACK, own.scope)

    async def finish(self, cookie: str, query: Mapping[str, str]) -> tuple[str, str, str]:
        """The id of a new session, its user, and where it leads, for an answer of the provider.

        There is nothing to guess here, as passwords can be, so that failures are not counted, and shut out nobody.
        Raises LoginProblem, LoginRefused, ProviderSilent, and ClientError if the brokers do not answer.
        """
        attempt = self._attempts.take(cookie, query.get("state", ""))
        own, found = self._settings, await self._provider.addresses()
        code = code_of(query, own.issuer, names_issuer=found.names_issuer)
        tokens = await self._provider.exchange(code, attempt.verifier, self.base + CALLBACK)
        if tokens.identity is None:
            raise LoginProblem("the provider gives no id token: is openid in --oidc-scope?")
        claims = await self._provider.claims(tokens.identity)
        check_claims(claims, own.client_id, attempt.nonce, tokens.access)
        identity = identity_of(claims, own.user_claim, own.groups_claim)
        role = self._logins.roles.of(identity.user, identity.groups)
        if role is Role.NONE:
            raise LoginRefused(403, f"{identity.user} may not use this console")
        token = UserToken(identity.subject)
        token.take(tokens, end_of(tokens, claims), self._wall())
        properties = self._logins.by_token(token.supply)
        try:
            async with asyncio.timeout(WAIT_S):
                await self._logins.ask_brokers(properties)
        except TlsFailed:
            raise
        except AuthenticationFailed:
            raise LoginRefused(
                403, "the brokers do not take the provider's access token: are its issuer and audience theirs?"
            ) from None
        session_id = self._logins.begin(identity.user, role, secrets.token_bytes(32), properties)
        session = self._sessions.find(session_id, is_used=True)
        assert session is not None
        self._tokens[session] = token
        self._limit(session, token)
        return session_id, identity.user, attempt.following

    def _limit(self, session: Session, token: UserToken) -> None:
        session.until = self._now() + token.end_s - self._wall()

    def ended(self, session: Session) -> None:
        """A session is over: its tokens are forgotten."""
        token = self._tokens.pop(session, None)
        if token is not None:
            token.forget()

    async def renew(self) -> None:
        """Renew the tokens for which it is time; end the sessions of users that the provider refuses."""
        now_s = self._wall()
        due = [
            (session, token) for session, token in self._tokens.items() if token.refresh and now_s >= token.renew_at_s
        ]
        await asyncio.gather(*(self._renew(session, token) for session, token in due))

    async def _renew(self, session: Session, token: UserToken) -> None:
        try:
            tokens = await self._provider.renew(token.refresh or "")
            claims: Mapping[str, Any] = {}
            if tokens.identity is not None:
                claims = await self._provider.claims(tokens.identity)
                check_claims(claims, self._settings.client_id, None, tokens.access)
                if claims.get("sub") != token.subject:
                    raise LoginProblem("the renewed token is another user's")
            end_s = end_of(tokens, claims)
        except ProviderSilent:
            return  # the token is still valid: it is tried again, and the session ends with it
        except LoginProblem:
            self._sessions.end(session)
            return
        if session.ended:
            return
        token.take(tokens, end_s, self._wall())
        self._limit(session, token)
        viewer: Viewer = session.holder[0]
        await viewer.view.reconnect()


def end_of(tokens: Tokens, claims: Mapping[str, Any]) -> float:
    """When the access token ends, in seconds since 1970: by its own claim or the life that the provider names,
    whichever is sooner; without both, with the id token of these claims. Raises LoginProblem.
    """
    ends = [] if tokens.expires_s is None else [tokens.expires_s]
    try:
        ends.append(expiry_s(tokens.access, "the provider"))
    except AuthenticationFailed:  # no JSON Web Token: the brokers will ask the provider about it
        if not ends and isinstance(claims.get("exp"), int | float):
            ends.append(float(claims["exp"]))
    if not ends:
        raise LoginProblem("the provider does not say how long the access token is valid")
    return min(ends)
