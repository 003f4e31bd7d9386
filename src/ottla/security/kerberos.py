"""Both roles of the SASL mechanism GSSAPI, with Kerberos 5 and without a security layer, as in Kafka.

    client                                        broker
      token of the context    ------------------>
                              <------------------  token of the context, until it is complete
      nothing                 ------------------>
                              <------------------  wrapped: layers that are offered (1: none), largest message
      wrapped: the layer that is chosen, size, user  -->

Source: RFC 4752. The name is the one that the ticket proves: Kafka pays no attention to the one that is asked for, and
some clients send that of the service.
"""

from collections.abc import Callable
from typing import Final, Protocol

from ottla.config.kerberos import KerberosKey, KerberosSettings
from ottla.errors import InvalidConfig
from ottla.security.gssapi import Acceptor, Credentials, GssError, Initiator, need_kerberos, new_cache
from ottla.security.kerberos_names import check_rules
from ottla.security.principals import UnnamedClient
from ottla.security.sasl import AuthenticationRefused

NO_LAYER: Final = 1
_OFFER: Final = bytes((NO_LAYER, 0, 0, 0))


class Ending(Protocol):
    """One end of a context (`gssapi.Context`)."""

    is_complete: bool
    peer: str

    def step(self, token: bytes) -> bytes:
        """Answer a token. Raises `GssError`."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Protect a message."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Check a message. Raises `GssError`."""
        ...


class KerberosExchange:
    """The broker's side of one authentication. `judge` is called in a thread, `respond` after it on the loop's."""

    def __init__(self, accept: Callable[[], Ending], short_name: Callable[[str], str]) -> None:
        """`accept` begins a context, and may raise `GssError`. `short_name` raises `UnnamedClient`."""
        self._accept = accept
        self._short_name = short_name
        self._context: Ending | None = None
        self._has_offered = False
        self._answer: bytes | None = None
        self._problem: Exception | None = None
        self._found: str | None = None
        self.user: str | None = None
        self.claimed: str | None = None
        self.lifetime_ms: int | None = None
        self.is_by_token = False

    def judge(self, token: bytes) -> None:
        """Prepare the answer to a token: it may wait for a file."""
        self._answer = None
        try:
            self._answer = self._judged(token)
        except (GssError, UnnamedClient) as problem:
            self._problem = problem

    def respond(self, token: bytes) -> bytes:
        """The answer to the token that was judged. Raises `AuthenticationRefused`."""
        answer, self._answer = self._answer, None
        self.claimed = (None if self._context is None else self._context.peer) or None
        if answer is None:
            reason = AuthenticationRefused(str(self._problem or "its token was not judged"))
            raise AuthenticationRefused("Authentication failed: Invalid user credentials") from reason
        self.user = self._found
        if self.user is not None:
            self.claimed = self.user
        return answer

    def _judged(self, token: bytes) -> bytes:
        if self._problem is not None:
            raise GssError("the login has failed before")
        if self._context is None:
            self._context = self._accept()
        context = self._context
        if not context.is_complete:
            answer = context.step(token)
            if answer:
                return answer
            token = b""
            if not self._context.is_complete:
                raise GssError("the context is not complete, and there is nothing to answer")
        if not self._has_offered:
            if token:
                raise GssError("the client sends a token after the context is complete")
            self._has_offered = True
            return context.wrap(_OFFER)
        chosen = context.unwrap(token)
        if len(chosen) < len(_OFFER) or chosen[0] != NO_LAYER:
            raise GssError("the client chooses a security layer, and none is offered")
        self._found = self._short_name(context.peer)
        return b""


def check_kerberos(settings: KerberosSettings) -> None:
    """Raise `InvalidConfig` if the library, the key table or the rules cannot be used. Reads the key table."""
    need_kerberos()
    check_rules(settings.rules)
    try:
        Credentials(settings.key.principal, settings.key.key_table)
    except GssError as problem:
        raise InvalidConfig(
            f"the key table {settings.key.key_table} cannot be used for {settings.key.principal}: {problem}"
        ) from problem


class KerberosAcceptor:
    """Begins contexts with the key of a listener; in threads."""

    def __init__(self, key: KerberosKey) -> None:
        self._key = key

    def __call__(self) -> Acceptor:
        """With the key table as it is now. Raises `GssError`."""
        return Acceptor(Credentials(self._key.principal, self._key.key_table))


class KerberosLogin:
    """A client's side of one authentication; after `prepare`, nothing waits."""

    name: Final = "GSSAPI"

    def __init__(self, begin: Callable[[], Ending]) -> None:
        """`begin` begins a context, and may raise `GssError`."""
        self._begin = begin
        self._context: Ending | None = None
        self._first = b""
        self._is_done = False

    def prepare(self) -> None:
        """Get tickets, in a thread. Raises ConnectionError."""
        try:
            self._context = self._begin()
            self._first = self._context.step(b"")
        except GssError as problem:
            raise ConnectionError(f"Kerberos gives no ticket: {problem}") from problem

    def respond(self, challenge: bytes | None) -> bytes | None:
        """What to send after `challenge`, which is None at first; None when nothing is left to send.

        Raises ConnectionError if the broker does not prove itself.
        """
        assert self._context is not None
        if challenge is None:
            return self._first
        if self._is_done:
            return None
        try:
            if not self._context.is_complete:
                return self._context.step(challenge)
            offered = self._context.unwrap(challenge)
            if len(offered) != len(_OFFER) or not offered[0] & NO_LAYER:
                raise GssError("the broker asks for a security layer")
            self._is_done = True
            return self._context.wrap(_OFFER)
        except GssError as problem:
            raise ConnectionError(f"Kerberos refuses the login: {problem}") from problem


class KerberosLogins:
    """Logins of this broker to others, with tickets that are renewed from its key table; in any threads."""

    def __init__(self, key: KerberosKey, service: str) -> None:
        self._key = key
        self._service = service
        self._cache = new_cache()

    def to(self, host: str) -> KerberosLogin:
        """A login to the service at a host."""

        def begin() -> Initiator:
            credentials = Credentials(self._key.principal, self._key.key_table, cache=self._cache)
            return Initiator(credentials, self._service, host)

        return KerberosLogin(begin)
