"""Logins to the REST API: basic (RFC 7617) and bearer tokens (RFC 6750), and what their users may do.

    Authorization: Basic ...   --> the file of users (`users.py`), passwords or their hashes
    Authorization: Bearer ...  --> a JSON Web Token of a provider (`security/bearer_tokens.py`)
                 then: GET reads; everything else changes something, and is for admins

A user who may only read gets no passwords of connectors (`redaction.py`).
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.config.sasl import TokenSettings
from ottla.connect.rest.guard import Refusal, Refuse
from ottla.connect.rest.passwords import DECOY, is_hash, is_right
from ottla.connect.rest.users import Users
from ottla.security.bearer_tokens import accept_signed, key_id
from ottla.security.failed_logins import FailedLogins
from ottla.security.provider_keys import ProviderKeys
from ottla.security.sasl import AuthenticationRefused

log = logging.getLogger(__name__)

CALLER: Final = "ottla.caller"
"""The key of a request's `Caller` in its scope."""
EVERY_USER: Final = "*"
READS: Final = ("GET", "HEAD", "OPTIONS")
_MOST_ACCEPTED: Final = 1000
_LONGEST_CREDENTIALS: Final = 1 << 16
_LONGEST_PASSWORD: Final = 1024
_THREADS: Final = 2
"""Each check of a hash takes 16 MiB and some 50 ms of a core."""
_WRONG: Final = "User cannot access the resource."
"""Kafka's words, for every reason: others would help to guess."""


class Caller(NamedTuple):
    """The user of a request. may_change: may change something, and see passwords of connectors."""

    user: str
    may_change: bool


ANYBODY: Final = Caller("ANONYMOUS", may_change=True)
"""Where no login is asked for."""


class Logins:
    """Judges requests. On the loop of the REST API, but for the hashes of passwords."""

    def __init__(
        self,
        users: Users | None,
        tokens: TokenSettings | None,
        admins: frozenset[str] | None,
        clock: Callable[[], float],
    ) -> None:
        """admins: users who may change something, `*` for all; None: all of the file, and nobody by a token alone."""
        self._users, self._tokens, self._admins, self._clock = users, tokens, admins, clock
        self._failed = FailedLogins()
        self._accepted: OrderedDict[bytes, int] = OrderedDict()
        """Digests of names and passwords that were right, with the revision of the file."""
        self._secret = secrets.token_bytes(32)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="connect password")
        self._provider: ProviderKeys | None = None

    @property
    def schemes(self) -> str:
        """For the header WWW-Authenticate."""
        offered = ['Basic realm="Connect"'] if self._users is not None else []
        return ", ".join(offered + (["Bearer"] if self._tokens is not None else []))

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def caller(self, headers: Headers, address: str) -> Caller:
        """The user that a request proves. Raises Refusal: 401, or 429 after too many failures."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        credentials = credentials.strip()
        kind = scheme.lower()
        if not credentials or len(credentials) > _LONGEST_CREDENTIALS:
            raise self._refusal()
        if kind == "basic" and self._users is not None:
            return await self._by_password(self._users, credentials, address)
        if kind == "bearer" and self._tokens is not None:
            return await self._by_token(self._tokens, credentials, address)
        raise self._refusal()

    async def _by_password(self, users: Users, credentials: str, address: str) -> Caller:
        try:
            user, colon, password = b64decode(credentials, validate=True).decode().partition(":")
        except (Base64Error, ValueError):
            raise self._refusal() from None
        if not colon or len(password) > _LONGEST_PASSWORD:
            raise self._refusal()
        kept = users.kept(user)
        proof = hmac.digest(
            self._secret, hashlib.sha256(credentials.encode()).digest() + (kept or "").encode(), "sha256"
        )
        if kept is None or self._accepted.get(proof) != users.revision:
            self._take_attempt(address, user)
            if not await self._is_right(kept, password):
                log.warning("a login of %r from %s to the REST API was refused", user[:100], address)
                raise self._refusal()
            self._failed.forgive(address, user, self._clock())
            self._accepted[proof] = users.revision
            while len(self._accepted) > _MOST_ACCEPTED:
                self._accepted.popitem(last=False)
        admins = self._admins
        return Caller(user, admins is None or EVERY_USER in admins or user in admins)

    async def _is_right(self, kept: str | None, password: str) -> bool:
        if kept is not None and not is_hash(kept):
            if is_right(kept, password):
                return True
            kept = None  # refused as late as a user who does not exist
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(self._threads, is_right, kept or DECOY, password)
        return right and kept is not None

    async def _by_token(self, settings: TokenSettings, token: str, address: str) -> Caller:
        if self._failed.wait_s(address, None, self._clock()) > 0:
            raise self._too_many(address, None)
        if self._provider is None:
            self._provider = ProviderKeys(settings, asyncio.get_running_loop())
        try:
            if self._provider.are_wanted(key_id(token)):
                await self._provider.read()
            accepted = accept_signed(settings, self._provider.known)(token)
        except AuthenticationRefused as refused:
            self._failed.note(address, None, self._clock())
            log.warning("a token from %s was refused by the REST API: %s", address, refused)
            raise self._refusal() from None
        admins = self._admins or frozenset()
        return Caller(accepted.user, EVERY_USER in admins or accepted.user in admins)

    def _take_attempt(self, address: str, user: str) -> None:
        if self._failed.wait_s(address, user, self._clock()) > 0:
            raise self._too_many(address, user)
        self._failed.note(address, user, self._clock())

    def _too_many(self, address: str, user: str | None) -> Refusal:
        wait_s = self._failed.wait_s(address, user, self._clock())
        return Refusal(429, f"Too many failed logins: try again in {wait_s} s", {"Retry-After": str(wait_s)})

    def _refusal(self) -> Refusal:
        return Refusal(401, _WRONG, {"WWW-Authenticate": self.schemes})


def logged_in(app: ASGIApp, refuse: Refuse, logins: Logins | None) -> ASGIApp:
    """`app` for users with a login, with the `Caller` in the scope of each request; None: everybody may."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http":
            try:
                scope[CALLER] = await _caller(logins, scope)
            except Refusal as refusal:
                answer = refuse(refusal)
        await answer(scope, receive, send)

    return checked


async def _caller(logins: Logins | None, scope: Scope) -> Caller:
    if logins is None:
        return ANYBODY
    client = scope.get("client")
    caller = await logins.caller(Headers(scope=scope), client[0] if client else "")
    if not caller.may_change and scope["method"] not in READS:
        log.warning(
            "%r may not change anything: %s %s was refused", caller.user[:100], scope["method"], scope["path"][:200]
        )
        raise Refusal(
            403,
            f"{caller.user} may only read: rest.admin.users of the worker names those with more rights",
        )
    return caller
