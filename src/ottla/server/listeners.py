"""All listeners of a broker: opened at its start, and changed with `listeners` while it runs.

A change is first prepared: its sockets are bound before it is committed, and refused if that fails. Once it is
committed, new listeners are opened, old ones are closed, and the broker is registered under its new addresses.
"""

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.sasl import PROTOCOLS as SASL_PROTOCOLS
from ottla.config.sasl import sasl_settings
from ottla.config.tls import PROTOCOLS
from ottla.errors import InvalidConfig, InvalidRequest, OttlaError, sentence
from ottla.server.listener import Listener, LoadFor, OpenSockets
from ottla.server.transport import PlainTransport, Transport
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener as Address
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.view import MetadataView
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.authentication import Authentication
    from ottla.server.certificates import Certificates
    from ottla.server.connection import FrameHandler
    from ottla.server.connection_limits import ConnectionLimits
    from ottla.server.memory import MemoryBudget

log = logging.getLogger(__name__)


class _Bound(NamedTuple):
    wanted: "Address"
    port: int
    listener: Listener

    def is_at(self, address: "Address") -> bool:
        return address.host == self.wanted.host and address.port in (self.wanted.port, self.port)


class Listeners:
    """Owns the listeners of a broker and their sockets. On the loop's thread."""

    def __init__(
        self,
        open_sockets: OpenSockets,
        limits: "ConnectionLimits",
        memory: "MemoryBudget",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._certificates: Certificates | None = None
        """Where a listener speaks TLS."""
        self.ports: dict[str, int] = {}
        """Listener name to the port it is bound to."""
        self.endpoints: dict[str, tuple[str, int]] = {}
        """Listener name to the address it is registered under."""
        self._open_sockets = open_sockets
        self._limits = limits
        self.memory = memory
        self._loop = loop
        self._connection_ids = itertools.count(1)
        self._open: dict[str, _Bound] = {}
        self._prepared: dict[Address, _Bound] = {}
        self._retired: list[Listener] = []
        self._shared: Mapping[str, Sequence[socket.socket]] = {}
        self._wanted: tuple[Address, ...] = ()
        self._changing = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._begin: Callable[[Listener], None] | None = None
        self._end_subscription: Callable[[], None] | None = None

    # -- start and stop ----------------------------------------------------------------------------------------------

    def open(self, config: "BrokerConfig", static: "BrokerConfig") -> None:
        """Bind the listeners of `config`, or else of the properties file. OSError names the one that cannot be bound.

        A listener that was changed while the broker ran does not keep it from starting: only a running broker can
        be given another one.
        """
        try:
            self._open_all(config)
        except OSError as problem:
            if config.listeners == static.listeners:
                raise
            log.error(
                "%s; the broker listens at the addresses of its properties file: change or delete the listeners that "
                "were set while it ran",
                sentence(problem),
            )
            self._open_all(static)
        self._wanted = config.listeners

    def _open_all(self, config: "BrokerConfig") -> None:
        opened: dict[str, _Bound] = {}
        try:
            for wanted in config.listeners:
                opened[wanted.name] = self._bind(wanted, config)
        except (OSError, InvalidConfig):
            for bound in opened.values():
                bound.listener.close()
            raise
        self._take(opened, config)

    def start(
        self,
        metadata: "MetadataView",
        handle_frame: "FrameHandler",
        disconnected: Callable[[int], None],
        *,
        load_for: LoadFor | None = None,
        tokens: "DelegationTokens | None" = None,
        audit: "AuditLog | None" = None,
    ) -> None:
        """Accept connections, as `Listener.start`, and follow changes of `listeners` from now on. `tokens`: with which
        clients can log in, too."""

        def begin(listener: Listener) -> None:
            authentication = self._authentication(metadata, listener.name, tokens)
            listener.start(handle_frame, disconnected, load_for=load_for, authentication=authentication, audit=audit)

        def changed(*_: object) -> None:
            if self._certificates is not None:
                self._certificates.follow(metadata.config)
            if metadata.config.listeners != self._wanted and self._following is None:
                self._following = supervised(self._loop, self._follow(metadata), "changes of listeners")

        self._begin = begin
        for bound in self._open.values():
            begin(bound.listener)
        self._end_subscription = metadata.subscribe(changed)
        changed()

    def share(self, sockets: Mapping[str, Sequence[socket.socket]]) -> None:
        """Accept also at listening sockets that other processes have, too, by listener name: see `Listener.share`."""
        self._shared = sockets
        for name, bound in self._open.items():
            bound.listener.share(sockets.get(name, ()))

    def unshare(self) -> None:
        """Leave them to the other processes."""
        self._shared = {}
        for bound in self._open.values():
            bound.listener.unshare()

    def connection_counts(self) -> dict[str, int]:
        """How many connections are open at each listener."""
        return {name: len(bound.listener.connections) for name, bound in self._open.items()}

    def close(self) -> None:
        """Stop accepting, and close every connection."""
        if self._end_subscription is not None:
            self._end_subscription()
            self._end_subscription = None
        if self._following is not None:
            self._following.cancel()
        for bound in (*self._open.values(), *self._prepared.values()):
            bound.listener.close()
        for listener in self._retired:
            listener.close()

    async def close_certificates(self) -> None:
        """Stop looking at them, once every connection is closed."""
        if self._certificates is not None:
            await self._certificates.close()

    # -- changes -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def prepared(self, config: "BrokerConfig") -> AsyncIterator[None]:
        """Bind what `config` adds; within, the change is committed. On exit a committed change has taken effect, and
        nothing is left of one that was not.

        Raises `InvalidRequest` if a socket cannot be bound.
        """
        async with self._changing:
            try:
                for wanted in config.listeners:
                    if not self._is_open(wanted):
                        self._prepared[wanted] = await self._loop.run_in_executor(None, self._bind, wanted, config)
            except (OSError, InvalidConfig) as problem:
                self._drop_prepared()
                raise InvalidRequest(sentence(problem)) from problem
            try:
                yield
                if self._following is not None:
                    await asyncio.wait([self._following])
            finally:
                self._drop_prepared()

    async def check_security(self, config: "BrokerConfig") -> None:
        """Raise `InvalidRequest` if an open listener could not encrypt or authenticate with these settings."""
        try:
            if self._certificates is not None:
                await self._certificates.check(config)
            for listener in config.listeners:
                if listener.security_protocol in SASL_PROTOCOLS:
                    _check_sasl(config, listener.name)
        except InvalidConfig as problem:
            raise InvalidRequest(str(problem)) from problem

    def _drop_prepared(self) -> None:
        for bound in self._prepared.values():
            bound.listener.close()
        self._prepared.clear()

    async def _follow(self, metadata: "MetadataView") -> None:
        """Apply changes until none is left; what another broker's change or a lost answer brought is bound here."""
        try:
            while metadata.config.listeners != self._wanted:
                config = metadata.config
                await self._apply(config)
                self._wanted = config.listeners
                try:
                    await metadata.advertise(dict(self.endpoints))
                except OttlaError as problem:
                    log.error("the broker is registered under its old addresses until it is restarted: %s", problem)
                self._retired = [listener for listener in self._retired if listener.connections]
        finally:
            self._following = None

    async def _apply(self, config: "BrokerConfig") -> None:
        assert self._begin is not None
        after: dict[str, _Bound] = {}
        for wanted in config.listeners:
            if self._is_open(wanted):
                after[wanted.name] = self._open[wanted.name]._replace(wanted=wanted)
                continue
            bound = self._prepared.pop(wanted, None)
            if bound is None:
                try:
                    bound = await self._loop.run_in_executor(None, self._bind, wanted, config)
                except (OSError, InvalidConfig) as problem:
                    log.error("a change of listeners is not followed: %s", sentence(problem))
                    if wanted.name in self._open:
                        after[wanted.name] = self._open[wanted.name]
                    continue
            self._begin(bound.listener)
            bound.listener.share(self._shared.get(wanted.name, ()))
            log.info("listener %s is open at port %d", wanted.name, bound.port)
            after[wanted.name] = bound
        kept = {id(bound.listener) for bound in after.values()}
        gone = [bound for bound in self._open.values() if id(bound.listener) not in kept]
        self._take(after, config)
        for bound in gone:
            bound.listener.retire()
            self._retired.append(bound.listener)
            log.info("listener %s at port %d is closed", bound.wanted.name, bound.port)

    def _take(self, bound: dict[str, _Bound], config: "BrokerConfig") -> None:
        self._open = bound
        self.ports = {name: each.port for name, each in bound.items()}
        self.endpoints = {name: _endpoint(each, config) for name, each in bound.items()}
        for each in bound.values():
            each.listener.follow(config)

    def _is_open(self, wanted: "Address") -> bool:
        known = self._open.get(wanted.name)
        return known is not None and known.is_at(wanted)

    def _bind(self, wanted: "Address", config: "BrokerConfig") -> _Bound:
        listener = Listener(
            wanted.name,
            loop=self._loop,
            config=config,
            limits=self._limits,
            memory=self.memory,
            next_connection_id=self._connection_ids.__next__,
            transport=self._transport(wanted, config),
        )
        return _Bound(wanted, listener.bind(wanted.host, wanted.port, self._open_sockets), listener)

    def _transport(self, wanted: "Address", config: "BrokerConfig") -> Callable[[socket.socket], Transport]:
        """Raises `InvalidConfig` if there is no certificate for it, or no way to authenticate."""
        if wanted.security_protocol in SASL_PROTOCOLS:
            _check_sasl(config, wanted.name)
        if wanted.security_protocol not in PROTOCOLS:
            return PlainTransport
        return partial(self.certificates(config, wanted.name).transport, wanted.name)

    def _authentication(
        self, metadata: "MetadataView", listener: str, tokens: "DelegationTokens | None"
    ) -> "Callable[[], Authentication] | None":
        if metadata.config.security_protocols.get(listener) not in SASL_PROTOCOLS:
            return None
        from ottla.server.authentication import Authentication, ListenerMechanisms

        mechanisms = ListenerMechanisms(metadata, listener, self._loop, tokens)
        return lambda: Authentication(mechanisms, self._loop.time)

    def certificates(self, config: "BrokerConfig", listener: str) -> "Certificates":
        """The contexts of all listeners with TLS, with that of this one. Raises `InvalidConfig`, as `add`."""
        certificates = self._some_certificates()
        certificates.add(config, listener)
        return certificates

    def connector(self, config: "BrokerConfig", listener: str) -> "Connect":
        """How this node connects to that listener of others, with TLS. Raises `InvalidConfig`."""
        return self._some_certificates().connector(config, listener)

    def _some_certificates(self) -> "Certificates":
        if self._certificates is None:
            from ottla.server.certificates import Certificates  # only a broker with TLS pays for its code

            self._certificates = Certificates(self._loop)
        return self._certificates


def _check_sasl(config: "BrokerConfig", listener: str) -> None:
    """Raise `InvalidConfig` if clients could not authenticate."""
    kerberos = sasl_settings(config, listener).kerberos
    if kerberos is not None:
        from ottla.security.kerberos import check_kerberos

        check_kerberos(kerberos)


def _endpoint(bound: _Bound, config: "BrokerConfig") -> tuple[str, int]:
    wanted = bound.wanted
    advertised = next((each for each in config.advertised_listeners if each.name == wanted.name), wanted)
    host = advertised.host
    if not host and config.is_in_cluster:
        host = socket.getfqdn()  # what other machines may know this one by, as in Kafka
    return host, advertised.port or bound.port
