"""Logins with the brokers' own users: a name and password are right if a broker takes them.

Each user has connections of its own, so that the brokers' rules decide what the user sees and does, and the brokers'
audit log names it. A password is kept in memory while its user is logged in: connections are opened anew.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ottla.admin import AsyncAdmin, AuthenticationFailed
from ottla.client.errors import TlsFailed
from ottla.console.access.masks import Masks
from ottla.console.access.roles import Role, Roles
from ottla.console.access.sessions import Session, Sessions, TooManySessions
from ottla.console.access.viewer import Viewer
from ottla.console.cluster import ClusterView
from ottla.security.failed_logins import FailedLogins

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
AT_A_TIME: Final = 4
"""Logins that ask the brokers at a time; others wait."""
WAIT_S: Final = 15.0
LONGEST: Final = 256
"""Characters of a name or password."""
MOST_TAKEN: Final = 1_000
"""Names with their passwords, as digests, that are remembered."""
UNMASKED: Final = Masks()


Connect = Callable[[str, Mapping[str, Any]], ClusterView]
"""Makes the connections of a user, from bootstrap servers and properties."""
Check = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Raises AuthenticationFailed if the brokers do not take a user, ClientError if they do not answer."""


async def takes(bootstrap: str, properties: Mapping[str, Any]) -> None:
    """Ask the brokers for themselves, as a user. Raises AuthenticationFailed, ClientError."""
    async with AsyncAdmin(bootstrap, client_id="ottla-console", timeout_s=WAIT_S, properties=properties) as admin:
        await admin.describe_cluster([])


class LoginRefused(Exception):
    """Nobody has logged in; `status` is HTTP's."""

    def __init__(self, status: int, message: str, *, wait_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.wait_s = status, wait_s


class Logins:
    """Checks names and passwords, and makes sessions. On one event loop."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        sessions: Sessions,
        now: Callable[[], float],
        roles: Roles,
        masks: Masks,
        *,
        changes: bool,
        connect: Connect,
        check: Check,
    ) -> None:
        """`properties`: how connections are protected, without a user. `now`: seconds of a monotonic clock."""
        self._connect = connect
        self._check = check
        self._bootstrap = bootstrap
        self._properties = {
            name: value for name, value in properties.items() if name not in ("sasl.username", "sasl.password")
        }
        chosen = self._properties.pop("sasl.mechanism", self._properties.pop("sasl.mechanisms", ""))
        self.mechanisms: Final = (chosen.upper(),) if chosen else MECHANISMS
        self._sessions = sessions
        self._now = now
        self.roles: Final = roles
        self._masks = masks
        self._changes = changes
        self._failed = FailedLogins()
        self._checks = asyncio.Semaphore(AT_A_TIME)
        self._digest_key = secrets.token_bytes(32)
        self._taken: OrderedDict[bytes, None] = OrderedDict()
        """Names and passwords that were right when they were last tried: failures of others shut these out never."""
        self._views: dict[bytes, tuple[ClusterView, int]] = {}
        """Views with the number of their sessions, by user and password."""

    async def log_in(self, address: str, mechanism: str, user: str, password: str) -> str:
        """The id of a new session. Raises LoginRefused, ClientError if the brokers do not answer."""
        if mechanism not in self.mechanisms:
            raise LoginRefused(400, f"the mechanism is one of {', '.join(self.mechanisms)}")
        if not user or not password or len(user) > LONGEST or len(password) > LONGEST or "\0" in user + password:
            raise LoginRefused(400, f"a name and a password have 1 to {LONGEST} characters")
        digest = self._digest(mechanism, user, password)
        wait_s = 0 if digest in self._taken else self._failed.wait_s(address, user, self._now())
        if wait_s:
            raise LoginRefused(429, f"too many logins have failed: try again in {wait_s} s", wait_s=wait_s)
        self._failed.note(address, user, self._now())
        properties = self._of_user(mechanism, user, password)
        try:
            async with asyncio.timeout(WAIT_S):
                await self.ask_brokers(properties)
        except TlsFailed:
            self._failed.forgive(address, user, self._now())
            raise
        except AuthenticationFailed:
            self._taken.pop(digest, None)
            raise LoginRefused(403, "the brokers do not take this name and password") from None
        except BaseException:
            self._failed.forgive(address, user, self._now())  # nothing was found out about the password
            raise
        self._failed.forgive(address, user, self._now())
        self._taken[digest] = None
        self._taken.move_to_end(digest)
        while len(self._taken) > MOST_TAKEN:
            self._taken.popitem(last=False)
        role = self.roles.of(user)
        if role is Role.NONE:
            raise LoginRefused(403, f"{user} may not use this console")
        return self.begin(user, role, digest, properties)

    async def ask_brokers(self, properties: Mapping[str, Any]) -> None:
        """Raise AuthenticationFailed if the brokers do not take a user, ClientError if they do not answer."""
        async with self._checks:
            await self._check(self._bootstrap, properties)

    def by_token(self, supply: Callable[[str], tuple[str, float]]) -> dict[str, Any]:
        """The properties of a user with tokens, which `supply` has."""
        others = {name: value for name, value in self._properties.items() if not name.startswith("sasl.")}
        return {**others, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": supply}

    def _of_user(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            **self._properties,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def begin(self, user: str, role: Role, digest: bytes, properties: Mapping[str, Any]) -> str:
        """The id of a new session of a user that the brokers take. Sessions with one `digest` share connections.

        Raises LoginRefused if there are too many.
        """
        view, count = self._views.get(digest) or (self._connect(self._bootstrap, properties), 0)
        masks = UNMASKED if role is Role.ADMIN else self._masks
        viewer = Viewer(view, user, role, masks, self._changes)
        self._views[digest] = view, count + 1
        try:
            session_id = self._sessions.begin(user, (viewer, digest))
        except TooManySessions as full:
            self._let_go(digest)
            raise LoginRefused(503, str(full)) from None
        viewer.session = self._sessions.find(session_id, is_used=True)
        return session_id

    def ended(self, session: Session) -> None:
        """A session is over: nobody needs its connections, unless its user is logged in elsewhere."""
        self._let_go(session.holder[1])

    def _let_go(self, digest: bytes) -> None:
        view, count = self._views.pop(digest)
        if count > 1:
            self._views[digest] = view, count - 1
        else:
            view.close()

    def _digest(self, *parts: str) -> bytes:
        return hmac.digest(self._digest_key, "\0".join(parts).encode(), hashlib.sha256)


def properties_problem(properties: Mapping[str, Any], *, by_token: bool = False) -> str | None:
    """Why nobody could log in with these client properties, or by a provider's token; None if users can."""
    protocol = str(properties.get("security.protocol", "plaintext")).upper()
    if not protocol.startswith("SASL"):
        return f"the brokers are reached by {protocol}, without users: set security.protocol to SASL_SSL"
    mechanism = str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", MECHANISMS[0]))).upper()
    if by_token:
        return None  # the mechanism is known
    if mechanism not in MECHANISMS:
        return f"users log in by {', '.join(MECHANISMS)}, not by {mechanism}: set sasl.mechanism"
    return None
