"""The TLS contexts of a node's listeners, and of those of others that it connects to: made at the start, and anew when
their settings or files have changed."""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.sockets import Connect, Stream, connect_with_tls
from ottla.config.tls import TlsSettings, tls_settings
from ottla.errors import InvalidConfig
from ottla.security.contexts import Made, client_context, server_context
from ottla.security.principals import principal_rules
from ottla.security.stores import Fingerprint, fingerprint
from ottla.server.tls_transport import TlsTransport
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 5.0
"""How often files are looked at for a change of their time or size."""
WARNING_DAYS: Final = (30, 7, 1, 0)
"""The days before the end of a certificate on which a warning is logged."""
HANDSHAKE_THREADS: Final = 2


class _Known(NamedTuple):
    settings: TlsSettings
    fingerprint: Fingerprint
    server: Made | None
    """For connections that are accepted; None for a listener that only others have."""
    client: Made | None
    """For connections to the same listener of others."""
    name: Callable[[bytes], str]


class Certificates:
    """Contexts by listener. On the loop's thread, but for `_make`, which reads files."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime] | None = None) -> None:
        self._loop = loop
        self._now = now or (lambda: datetime.now(UTC))
        self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, thread_name_prefix="ottla tls")
        self._known: dict[str, _Known] = {}
        self._refused: dict[str, tuple[TlsSettings, Fingerprint]] = {}
        self._warned: dict[str, tuple[datetime, int]] = {}
        self._config: BrokerConfig | None = None
        self._connects: set[str] = set()
        """Listeners of others that this node connects to."""
        self._task: asyncio.Task[None] | None = None

    # -- use ---------------------------------------------------------------------------------------------------------

    def add(self, config: "BrokerConfig", listener: str) -> None:
        """Make the context of a listener of this node, unless it is there; in any thread. Raises `InvalidConfig`."""
        known = self._known.get(listener)
        if known is None or known.server is None:
            self._known[listener] = self._make(config, listener, serves=True)

    def connector(self, config: "BrokerConfig", listener: str) -> Connect:
        """How this node connects to that listener of others. Raises `InvalidConfig`."""
        self._connects.add(listener)
        known = self._known.get(listener)
        if known is None or known.client is None:
            self._known[listener] = self._make(config, listener, serves=known is not None and known.server is not None)
        return partial(self._connect, listener)

    def transport(self, listener: str, sock: socket.socket) -> TlsTransport:
        """Encrypt a connection that was accepted, with the certificates of now. Raises OSError if the client left."""
        known = self._known[listener]
        assert known.server is not None, "not a listener of this node"
        return TlsTransport(sock, known.server.context, self._loop, self._threads, known.name)

    async def _connect(self, listener: str, host: str, port: int) -> Stream:
        """Connect to that listener of another node, with the certificates of now. Raises OSError."""
        client = self._known[listener].client
        assert client is not None, "`connector` has made it"
        return await connect_with_tls(client.context, host, port)

    def follow(self, config: "BrokerConfig") -> None:
        """Look for changed files and for certificates that expire, from now on, and use these settings."""
        self._config = config
        if self._task is None:
            self._task = supervised(self._loop, self._run(), "certificates")

    async def close(self) -> None:
        """Stop; connections have been closed before. Steps of handshakes that are under way end first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._loop.run_in_executor(None, self._threads.shutdown)
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # for the callbacks of the last steps, which close their sockets

    # -- changes -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            for listener in list(self._known):
                self._warn_of_expiry(listener)
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.refresh()

    async def check(self, config: "BrokerConfig") -> None:
        """Raise `InvalidConfig` if contexts cannot be made of settings that have changed."""
        for name, known in list(self._known.items()):
            if tls_settings(config, name) != known.settings:
                await self._loop.run_in_executor(None, self._again, config, name)

    async def refresh(self) -> None:
        """Look at settings and files once. Connections go on with what they have; new ones get what is new."""
        config = self._config
        names = () if config is None else [name for name in self._known if self._is_used(config, name)]
        for name in names:
            assert config is not None
            known = self._known[name]
            try:
                settings = tls_settings(config, name)
                found = await self._loop.run_in_executor(None, fingerprint, settings.key_store, settings.trust_store)
                if (settings, found) in ((known.settings, known.fingerprint), self._refused.get(name)):
                    continue
                self._refused[name] = settings, found
                self._known[name] = await self._loop.run_in_executor(None, self._again, config, name)
            except InvalidConfig as problem:
                log.error("%s; the listener goes on with the certificates that it has", problem)
                continue
            except Exception:  # a defect; but a broker that does not look any more would let its certificates expire
                log.exception("listener %s goes on with the certificates that it has", name)
                continue
            del self._refused[name]
            log.info("listener %s: certificates were replaced, without closing a connection", name)

    def _is_used(self, config: "BrokerConfig", listener: str) -> bool:
        return listener in self._connects or any(each.name == listener for each in config.listeners)

    def _again(self, config: "BrokerConfig", listener: str) -> _Known:
        return self._make(config, listener, serves=self._known[listener].server is not None)

    def _make(self, config: "BrokerConfig", listener: str, *, serves: bool) -> _Known:
        settings = tls_settings(config, listener)
        # before the content: a change in between is seen the next time
        found = fingerprint(settings.key_store, settings.trust_store)
        client = client_context(settings) if listener in self._connects else None
        name = principal_rules(settings.principal_rules)
        return _Known(settings, found, server_context(settings) if serves else None, client, name)

    def _warn_of_expiry(self, listener: str) -> None:
        known = self._known[listener]
        made = known.server or known.client
        if made is None or made.expires is None:
            return
        expires = made.expires
        left = expires - self._now()
        stage = next((days for days in reversed(WARNING_DAYS) if left <= timedelta(days=days)), None)
        if stage is None or self._warned.get(listener) == (expires, stage):
            return
        self._warned[listener] = expires, stage
        when = expires.strftime("%Y-%m-%d %H:%M UTC")
        if left <= timedelta(0):
            log.error("listener %s: its certificate expired on %s, and clients refuse it", listener, when)
        else:
            log.warning("listener %s: its certificate expires on %s, in %d days", listener, when, left.days)
