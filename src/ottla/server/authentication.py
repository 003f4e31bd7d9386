"""SASL on connections: what a client may send before it has proved its name (KIP-43, 152, 368).

    SaslHandshake (mechanism) --> SaslAuthenticate (token) ... --> everything, as a user, for a time

Before that ApiVersions and these two are taken, small, few and within a time limit.
"""

import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from ottla.cluster.image import ResourceType
from ottla.cluster.scram_credentials import ScramCredential, parse_credential
from ottla.config.sasl import SaslSettings, sasl_settings
from ottla.errors import ApiError, ErrorCode, InvalidConfig
from ottla.protocol.api import ApiKey
from ottla.security.sasl import (
    SCRAM_HASHES,
    AcceptedToken,
    AuthenticationRefused,
    BearerExchange,
    Exchange,
    PlainExchange,
    ScramExchange,
    TokenLogin,
    bearer_token,
    is_one_of,
    scram_name,
)

if TYPE_CHECKING:
    import asyncio

    from ottla.config.broker import BrokerConfig
    from ottla.config.sasl import TokenSettings
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView
    from ottla.security.provider_keys import ProviderKeys

MOST_REQUESTS: Final = 32
"""What a client may send before it has authenticated."""
_BEFORE: Final = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
_NONCE_BYTES: Final = 24
KERBEROS_THREADS: Final = 2


class Mechanisms(Protocol):
    """The mechanisms of a listener."""

    @property
    def settings(self) -> SaslSettings:
        """As they are now."""
        ...

    @property
    def max_bytes(self) -> int:
        """The largest request of a client that has not authenticated."""
        ...

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an exchange by an enabled mechanism."""
        ...

    def missing(self, mechanism: str, token: bytes, exchange: Exchange) -> Awaitable[None] | None:
        """What has to be waited for before the exchange can judge a token."""
        ...


class ListenerMechanisms:
    """Mechanisms by the settings and the credentials that hold when a client authenticates."""

    def __init__(
        self,
        metadata: "MetadataView",
        listener: str,
        loop: "asyncio.AbstractEventLoop",
        tokens: "DelegationTokens | None" = None,
    ) -> None:
        """`tokens`: with which clients can log in by SCRAM, too."""
        self._metadata = metadata
        self._listener = listener
        self._config: BrokerConfig | None = None
        self._settings: SaslSettings | None = None
        self._loop = loop
        self._tokens = tokens
        self._provider: ProviderKeys | None = None
        self._kerberos_threads: ThreadPoolExecutor | None = None
        self._short_names: tuple[tuple[str, ...], Callable[[str], str]] | None = None

    @property
    def settings(self) -> SaslSettings:
        """Read again when a setting of the broker has changed; ones that are refused change nothing."""
        config = self._metadata.config
        if self._settings is None or config is not self._config:
            try:
                self._settings = sasl_settings(config, self._listener)
            except InvalidConfig:
                if self._settings is None:
                    raise
            self._config = config
        return self._settings

    @property
    def max_bytes(self) -> int:
        """`sasl.server.max.receive.size`."""
        return self._metadata.config.sasl_server_max_receive_size

    def exchange(self, mechanism: str) -> Exchange:
        """Begin an exchange by an enabled mechanism."""
        if mechanism == "PLAIN":
            users = self.settings.plain_users
            return PlainExchange(is_one_of(users), users.__contains__)
        if mechanism == "OAUTHBEARER":
            return BearerExchange(self._accept_token)
        if mechanism == "GSSAPI":
            return self._kerberos_exchange()
        return ScramExchange(
            mechanism,
            lambda user: self._credential(mechanism, user),
            secrets.token_urlsafe(_NONCE_BYTES),
            lambda token_id: self._token_login(mechanism, token_id),
        )

    def missing(self, mechanism: str, token: bytes, exchange: Exchange) -> Awaitable[None] | None:
        """The keys of the provider, for tokens that were signed; the hash of a delegation token's secret; the judgement
        of Kerberos."""
        judge = getattr(exchange, "judge", None)
        if judge is not None:
            return self._loop.run_in_executor(self._kerberos_threads, judge, token)
        if mechanism in SCRAM_HASHES:
            token_id = None if self._tokens is None else scram_name(token)
            if self._tokens is None or token_id is None or self._tokens.is_prepared(token_id, mechanism):
                return None
            return self._tokens.prepare(token_id, mechanism)
        from ottla.security.bearer_tokens import key_id

        tokens = self.settings.tokens
        if mechanism != "OAUTHBEARER" or tokens is None or tokens.jwks_url is None:
            return None
        try:
            provider = self._provider_keys(tokens)
            return provider.read() if provider.are_wanted(key_id(bearer_token(token)[0])) else None
        except AuthenticationRefused:
            return None

    def _kerberos_exchange(self) -> Exchange:
        from ottla.security.gssapi import default_realm
        from ottla.security.kerberos import KerberosAcceptor, KerberosExchange
        from ottla.security.kerberos_names import short_names

        found = self.settings.kerberos
        assert found is not None
        if self._kerberos_threads is None:
            self._kerberos_threads = ThreadPoolExecutor(KERBEROS_THREADS, thread_name_prefix="ottla kerberos")
        if self._short_names is None or self._short_names[0] != found.rules:
            self._short_names = found.rules, short_names(found.rules, default_realm())
        return KerberosExchange(KerberosAcceptor(found.key), self._short_names[1])

    def _provider_keys(self, tokens: "TokenSettings") -> "ProviderKeys":
        if self._provider is None or self._provider.settings != tokens:
            from ottla.security.provider_keys import ProviderKeys  # only a broker with such tokens pays for it

            self._provider = ProviderKeys(tokens, self._loop)
        return self._provider

    def _accept_token(self, token: str) -> AcceptedToken:
        from ottla.security.bearer_tokens import accept_signed, accept_unsigned

        tokens = self.settings.tokens
        assert tokens is not None
        if tokens.jwks_url is None:
            return accept_unsigned(tokens)(token)
        return accept_signed(tokens, self._provider_keys(tokens).known)(token)

    def _token_login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        tokens = self._tokens
        token = None if tokens is None else tokens.usable(token_id)
        known = None if tokens is None else tokens.credential(token_id, mechanism)
        if tokens is None or token is None or known is None:
            return None
        lifetime_ms = min(token.expires_ms, token.max_ms) - tokens.now_ms()
        return TokenLogin(known, token.owner.partition(":")[2], lifetime_ms)

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        text = self._metadata.image.config(ResourceType.USER, user).get(mechanism)
        try:
            return None if text is None else parse_credential(text)
        except InvalidConfig:
            return None


class Authentication:
    """One connection's way to a user name. On the loop's thread."""

    __slots__ = (
        "_exchange",
        "_expires_at",
        "_lifetime_ms",
        "_mechanisms",
        "_now",
        "_requests",
        "claimed",
        "is_by_token",
        "mechanism",
        "principal",
        "takes_tokens",
    )

    def __init__(self, mechanisms: Mechanisms, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._mechanisms = mechanisms
        self._now = now
        self._exchange: Exchange | None = None
        self.mechanism = ""
        """The one that the client has chosen last."""
        self.claimed: str | None = None
        """The user that a refused client claims to be, if there is such a user."""
        self._requests = 0
        self._expires_at: float | None = None
        self._lifetime_ms: int | None = None
        self.principal: str | None = None
        """`User:<name>` once that is proved."""
        self.is_by_token = False
        """Whether that was proved with a delegation token."""
        self.takes_tokens = False
        """Whether the next frames are bare tokens: after version 0 of SaslHandshake."""

    @property
    def max_bytes(self) -> int:
        """The largest request that is taken before it has succeeded."""
        return self._mechanisms.max_bytes

    def admits(self, api_key: int) -> bool:
        """Whether a request may be handled now. A refused one closes its connection, as in Kafka."""
        if self.principal is not None:
            is_over = self._expires_at is not None and self._now() >= self._expires_at
            return not is_over or api_key in _BEFORE
        self._requests += 1
        return api_key in _BEFORE and self._requests <= MOST_REQUESTS

    def begin(self, mechanism: str, *, bare_tokens: bool) -> None:
        """A client has chosen a mechanism, at first or again (KIP-368). Raises `ApiError`."""
        if self._exchange is not None:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "an authentication is under way")
        if mechanism not in self.enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {mechanism!r} is not enabled")
        if bare_tokens and mechanism == "GSSAPI":  # each is judged in a thread, for which bare ones do not wait
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "GSSAPI needs version 1 of SaslHandshake")
        self.mechanism = mechanism
        self._exchange = self._mechanisms.exchange(mechanism)
        self.takes_tokens = bare_tokens

    @property
    def enabled(self) -> tuple[str, ...]:
        """The mechanisms that a client can choose."""
        return self._mechanisms.settings.mechanisms

    def missing(self, token: bytes) -> Awaitable[None] | None:
        """What has to be waited for before `respond` can judge a token; None for nothing."""
        exchange = self._exchange
        return None if exchange is None else self._mechanisms.missing(self.mechanism, token, exchange)

    def respond(self, token: bytes) -> bytes:
        """The challenge that answers a token.

        Raises `ApiError` ILLEGAL_SASL_STATE without a handshake before, SASL_AUTHENTICATION_FAILED with the reason that
        the client gets.
        """
        exchange = self._exchange
        if exchange is None:
            raise ApiError(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
            )
        try:
            challenge = exchange.respond(token)
        except AuthenticationRefused as refused:
            self._exchange = None
            self.claimed = None if exchange.claimed is None else f"User:{exchange.claimed}"
            text = str(refused)
            if self.mechanism.startswith(("SCRAM", "GSSAPI")):
                when = "authentication" if self.principal is None else "re-authentication"
                text = f"Authentication failed during {when} due to invalid credentials with SASL mechanism "
                text += self.mechanism
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, text) from refused
        if exchange.user is not None:
            self._complete(f"User:{exchange.user}", exchange.lifetime_ms)
            self.is_by_token = exchange.is_by_token
        return challenge

    def _complete(self, principal: str, proof_lifetime_ms: int | None) -> None:
        self._exchange = None
        self.takes_tokens = False
        if self.principal is not None and principal != self.principal:
            raise ApiError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Cannot change principals during re-authentication from {self.principal}: {principal}",
            )
        self.principal = principal
        limit_ms = self._mechanisms.settings.reauthentication_ms.get(self.mechanism, 0)
        limits = [limit for limit in (limit_ms if limit_ms > 0 else None, proof_lifetime_ms) if limit is not None]
        self._lifetime_ms = min(limits, default=None)
        self._expires_at = None if self._lifetime_ms is None else self._now() + self._lifetime_ms / 1000

    @property
    def is_complete(self) -> bool:
        """Whether a name has been proved, and no further exchange is under way."""
        return self.principal is not None and self._exchange is None

    @property
    def session_lifetime_ms(self) -> int:
        """How long a login lasts that has just succeeded; 0 for no limit, and while there is none."""
        if self.principal is None or self._exchange is not None:
            return 0
        return self._lifetime_ms or 0
