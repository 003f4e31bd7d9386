"""A worker with its REST API: what `ottla connect serve` runs, and tests inside their process."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from ottla.config.sasl import TokenSettings, checked_url
from ottla.connect.errors import ConfigError
from ottla.connect.rest.app import application
from ottla.connect.rest.authentication import Logins
from ottla.connect.rest.certificates import CHECK_INTERVAL_S, Certificates, https_settings
from ottla.connect.rest.forwarding import Forwarding
from ottla.connect.rest.listening import Listener, addresses, advertised, check_exposure, listening
from ottla.connect.rest.users import EXTENSION, Users, jaas_users_file
from ottla.connect.runtime.connector_log import ConnectorLog
from ottla.connect.runtime.metrics import metrics_of
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.worker import Worker
from ottla.connect.runtime.worker_settings import WorkerSettings, worker_settings
from ottla.errors import InvalidConfig, sentence
from ottla.impatience import ImpatientProtocol
from ottla.security.bearer_tokens import need_jwt
from ottla.tasks import supervised

log = logging.getLogger(__name__)

_START_S: Final = 30.0
_MOST_CONNECTIONS: Final = 500
_KEYS: Final = "rest.oauthbearer.jwks.endpoint.url"
_METHODS: Final = ("GET", "POST", "HEAD")
"""For web pages, unless `access.control.allow.methods` names others: Kafka's."""


class Server:
    """A worker that listens. `start` and `stop`, each once; `url` is where.

    settings: a worker's, by Kafka Connect's names. Raises ConfigError; ConnectError if an address is taken.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        given = Secrets().resolve(settings)
        known = worker_settings(given)
        wanted = addresses(known)
        self._certificates = None
        tls = https_settings(given) if any(each.scheme == "https" for each in wanted) else None
        if tls is not None:
            self._certificates = Certificates(tls)
        self._logins = logins(known)
        with ExitStack() as bound:
            self._listeners: list[Listener] = []
            for address in wanted:
                self._listeners.append(listening(address))
                bound.callback(self._listeners[-1].socket.close)
            for each in self._listeners:
                by_certificate = each.address.scheme == "https" and tls is not None and tls.client_auth == "required"
                check_exposure(known, each, has_login=self._logins is not None or by_certificate)
                _warn_of_exposure(each, has_passwords=self._logins is not None)
            reached = advertised(known, self._listeners)
            self.host: str = known.rest_advertised_host_name or reached.name
            self.port: int = known.rest_advertised_port or reached.port
            self._scheme = reached.address.scheme
            host = f"[{self.host}]" if ":" in self.host else self.host
            self.worker = Worker(settings, f"{host}:{self.port}")
            bound.pop_all()
        self._lines = ConnectorLog(self.worker.environment.secrets)
        self._metrics = ExitStack()
        self.metrics_ports: list[int] = []
        """The ports of metrics.listeners, once it has started."""
        self._servers = [self._server(each, known) for each in self._listeners]
        self._thread = threading.Thread(target=self._run, name="connect rest", daemon=True)

    def _server(self, listener: Listener, known: WorkerSettings) -> uvicorn.Server:
        certificates = self._certificates
        app: ASGIApp = application(
            self.worker,
            self._lines,
            origins=_listed(known.access_control_allow_origin),
            methods=_listed(known.access_control_allow_methods) or _METHODS,
            is_local=listener.is_loopback,
            logins=self._logins,
            forwarding=Forwarding(self._scheme, None if certificates is None else lambda: certificates.client),
        )
        secured: Mapping[str, Any] = (
            {"ssl_context_factory": lambda _config, _default: certificates.listening}
            if listener.address.scheme == "https" and certificates is not None
            else {}
        )
        config = uvicorn.Config(
            app,
            http=ImpatientProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody could name another address in them
            lifespan="off",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=2,
            **secured,
        )
        return uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Where the REST API is."""
        return f"{self._scheme}://{self.worker.address}"

    def start(self) -> None:
        """Answer requests, then read the state and begin. Raises ConnectError."""
        try:
            self.metrics_ports = self._metrics.enter_context(metrics_of(self.worker))
        except (InvalidConfig, OSError) as wrong:
            raise ConfigError(sentence(wrong), "metrics.listeners") from None
        self._lines.install()
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not all(each.started for each in self._servers) and time.monotonic() < deadline:
            time.sleep(0.005)
        try:
            self.worker.start()
        except BaseException:
            self._quiet()
            raise

    def stop(self) -> None:
        """Stop the tasks, leave the group, and stop the REST API."""
        try:
            self.worker.stop()
        finally:
            self._quiet()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        """All listeners on one loop, so that they share failed logins and the keys of tokens."""
        loop = asyncio.get_running_loop()
        looking = supervised(loop, self._look_for_certificates(), "certificates of the REST API")
        pairs = zip(self._servers, self._listeners, strict=True)
        await asyncio.gather(*(server.serve([listener.socket]) for server, listener in pairs))
        looking.cancel()

    async def _look_for_certificates(self) -> None:
        while self._certificates is not None:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await asyncio.to_thread(self._certificates.refresh)

    def _quiet(self) -> None:
        for each in self._servers:
            each.should_exit = True
        self._thread.join(_START_S)
        for listener in self._listeners:
            listener.socket.close()
        if self._logins is not None:
            self._logins.close()
        self._lines.remove()
        self._metrics.close()


def logins(known: WorkerSettings) -> Logins | None:
    """The logins that the settings ask for; None if they ask for none. Raises ConfigError."""
    unknown = [each for each in _listed(known.rest_extension_classes) if each != EXTENSION]
    if unknown:
        raise ConfigError(
            f"rest.extension.classes has {', '.join(unknown)}, Java classes that Ottla does not have: it has "
            f"{EXTENSION}",
            "rest.extension.classes",
        )
    file = None if known.rest_users_file is None else Path(known.rest_users_file)
    if known.rest_extension_classes:
        if file is not None:
            raise ConfigError("rest.users.file and rest.extension.classes exclude each other", "rest.users.file")
        file = jaas_users_file(known.rest_jaas_file)
    tokens = _tokens(known)
    admins = None if known.rest_admin_users is None else frozenset(_listed(known.rest_admin_users))
    if file is None and tokens is None:
        if admins is not None:
            raise ConfigError(
                "rest.admin.users names users, and nobody can log in: set rest.users.file or "
                "rest.oauthbearer.jwks.endpoint.url",
                "rest.admin.users",
            )
        return None
    return Logins(None if file is None else Users(file), tokens, admins, time.monotonic)


def _tokens(known: WorkerSettings) -> TokenSettings | None:
    url = known.rest_oauthbearer_jwks_endpoint_url
    if url is None:
        return None
    audience = tuple(_listed(known.rest_oauthbearer_expected_audience))
    if not audience:
        raise ConfigError(
            "rest.oauthbearer.expected.audience is missing: without it tokens for any other service would be accepted",
            "rest.oauthbearer.expected.audience",
        )
    try:
        need_jwt()
        checked_url(_KEYS, url)
    except InvalidConfig as wrong:
        raise ConfigError(str(wrong), _KEYS) from None
    issuer, claim = known.rest_oauthbearer_expected_issuer, known.rest_oauthbearer_sub_claim_name
    return TokenSettings(url, issuer, audience, claim, "scope", known.rest_oauthbearer_clock_skew_seconds)


def _warn_of_exposure(listener: Listener, *, has_passwords: bool) -> None:
    if listener.is_loopback or listener.address.scheme == "https":
        return
    if has_passwords:
        log.warning("the REST API at %s is not encrypted: passwords and tokens can be read on the way; use https",
                    listener.address.host or "*")  # fmt: skip
    else:
        log.warning("the REST API at %s asks for no login: every client that reaches it can do everything",
                    listener.address.host or "*")  # fmt: skip


def _listed(text: str) -> list[str]:
    return [each for each in (part.strip() for part in text.split(",")) if each]
