"""Listening sockets: accept as many as `ConnectionLimits` allows, and close everything at the end."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.security.principals import ANONYMOUS
from ottla.server.connection import Connection, Endpoints, FrameHandler, Load
from ottla.server.connection_limits import MOST_DELAYED
from ottla.server.framer import SCRATCH_BYTES
from ottla.server.transport import PlainTransport, Transport

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.authentication import Authentication
    from ottla.server.connection_limits import ConnectionLimits
    from ottla.server.memory import MemoryBudget

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
ACCEPTS_PER_WAKEUP: Final = 64
ACCEPT_PAUSE_S: Final = 0.1
COMPLAIN_AGAIN_S: Final = 60.0
SEND_BUFFER_BYTES: Final = 1 << 20
SYSTEMS_CHOICE: Final = -1
AUTHENTICATION_TIMEOUT_S: Final = 30.0
"""How long a client may take to authenticate."""
RETIREMENT_SECONDS: Final = 5.0
"""How long requests of a removed listener's connections may take at most, before the connections are closed."""
RETIREMENT_POLL_SECONDS: Final = 0.1
LoadFor = Callable[[int], Load]


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """A non-blocking socket for each address of `host` (empty: every interface), bound but not listening yet.

    All have one port, chosen by the system for 0. OSError names the address, the reason, and the remedy.
    """
    try:
        name = host.encode() if host.isascii() else host  # what is ASCII needs no module for other alphabets
        addresses = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(error.errno, f"finds no address of {host!r}: {error.strerror}") from error
    opened: list[socket.socket] = []
    for family, kind, protocol, _, address in addresses:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError:
            continue  # an address family this machine lacks
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind((address[0], port, *address[2:]))
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRNOTAVAIL and opened:
                continue
            for other in opened:
                other.close()
            advice = (
                "; stop what listens there, or name another port in listeners"
                if error.errno == errno.EADDRINUSE
                else ""
            )
            raise OSError(error.errno, f"cannot bind {address[0]}:{port}: {error.strerror}{advice}") from error
        port = sock.getsockname()[1]
        sock.setblocking(False)
        opened.append(sock)
    if not opened:
        raise OSError(errno.EADDRNOTAVAIL, f"cannot bind any address of {host!r}")
    return opened


OpenSockets = Callable[[str, int], list[socket.socket]]
"""As `open_sockets`."""


class Listener:
    """One configured listener: a name, its sockets (a host name may have several addresses), its connections."""

    def __init__(
        self,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        config: "BrokerConfig",
        limits: "ConnectionLimits",
        memory: "MemoryBudget",
        next_connection_id: Callable[[], int],
        transport: Callable[[socket.socket], Transport] = PlainTransport,
    ) -> None:
        """`transport` makes what is between a client's socket and its connection; it takes the socket over."""
        self.name = name
        self.connections: dict[Connection, None] = {}
        self._transport = transport
        self._loop = loop
        self._handle_frame: FrameHandler | None = None
        self._disconnected: Callable[[int], None] | None = None
        self._config = config
        self._limits = limits
        self._memory = memory
        self._load_for: LoadFor | None = None
        self._authentication: Callable[[], Authentication] | None = None
        self._audit: AuditLog | None = None
        self._spared = False
        self.follow(config)
        self._idle_limit_seconds = config.connections_max_idle_ms / 1000
        self._next_connection_id = next_connection_id
        self._sockets: list[socket.socket] = []
        self._shared: list[socket.socket] = []
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._idle_timer: asyncio.TimerHandle | None = None
        self._send_buffer_bytes = SEND_BUFFER_BYTES
        self._is_full = False
        self._silent_until = 0.0

    def follow(self, config: "BrokerConfig") -> None:
        """Apply settings that changed to connections that come from now on."""
        self._spared = len(config.listeners) > 1 and self.name == config.inter_broker_listener

    def bind(self, host: str, port: int, open_sockets: OpenSockets = open_sockets) -> int:
        """Bind all addresses of `host` (empty: every interface) and return the port, chosen by the system for 0.

        OSError names the address that could not be had. Nothing is accepted before `start`.
        """
        try:
            self._sockets = open_sockets(host, port)
        except OSError as error:
            raise OSError(error.errno, f"listener {self.name} {error.strerror}") from error
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    def start(
        self,
        handle_frame: FrameHandler,
        disconnected: Callable[[int], None],
        *,
        load_for: LoadFor | None = None,
        authentication: "Callable[[], Authentication] | None" = None,
        audit: "AuditLog | None" = None,
    ) -> None:
        """Accept from now on, hand every frame to `handle_frame`, and report the id of each connection that is closed
        to `disconnected`. `load_for` gives the `load` of a `Connection` with this id, `authentication` makes its way to
        a user name; `audit` notes the names that certificates prove, and refused handshakes."""
        self._authentication = authentication
        self._audit = audit
        self._handle_frame = handle_frame
        self._disconnected = disconnected
        self._load_for = load_for
        for sock in self._sockets:
            receive_buffer = self._given("socket.receive.buffer.bytes", SYSTEMS_CHOICE)
            if receive_buffer != SYSTEMS_CHOICE:  # set here, it holds for the connections, and for their windows
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.listen(self._given("socket.listen.backlog.size", BACKLOG))
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._send_buffer_bytes = self._given("socket.send.buffer.bytes", SEND_BUFFER_BYTES)
        if self._idle_limit_seconds > 0:  # -1 means never
            self._idle_timer = self._loop.call_later(self._idle_limit_seconds / 2, self._close_idle)

    def share(self, sockets: Iterable[socket.socket]) -> None:
        """Accept also at these, which listen already. The sockets may be those of other processes, too: a connection
        goes to the first process that accepts it."""
        for sock in sockets:
            own = sock.dup()
            self._shared.append(own)
            self._loop.add_reader(own.fileno(), self._accept, own)

    def unshare(self) -> None:
        """Leave new connections at shared sockets to the other processes; connections go on."""
        self._close(self._shared)

    def _given(self, name: str, own: int) -> int:
        """A setting that was given, or Ottla's own value in place of Kafka's default."""
        value = self._config.value(name)
        return value if name in self._config.given and isinstance(value, int) else own

    def _accept(self, listening: socket.socket) -> None:
        assert self._handle_frame is not None
        for _ in range(ACCEPTS_PER_WAKEUP):
            wait_s = self._limits.wait_s(self.name, self._loop.time())
            if wait_s != 0:
                self._pause_accepting(listening, wait_s)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory: the loop would spin on the waiting connection.
                log.error("listener %s cannot accept: %s; trying again in a moment", self.name, error)
                self._pause_accepting(listening, ACCEPT_PAUSE_S)
                return
            highest = self._limits.highest_descriptor
            if highest is not None and sock.fileno() >= highest:
                sock.close()
                self._complain_of_descriptors(highest)
                self._pause_accepting(listening, ACCEPT_PAUSE_S)
                return
            if self._is_refused(sock, address[0]):
                continue
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._send_buffer_bytes != SYSTEMS_CHOICE:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
                connection_id = self._next_connection_id()
                endpoints = Endpoints(self.name, connection_id, *sock.getpeername()[:2], *sock.getsockname()[:2])
                connection = Connection(
                    self._transport(sock),
                    endpoints,
                    loop=self._loop,
                    scratch=self._scratch,
                    handle_frame=self._handle_frame,
                    max_frame_bytes=self._config.socket_request_max_bytes,
                    memory=self._memory,
                    load=None if self._load_for is None else self._load_for(connection_id),
                    spared=self._spared,
                    authentication=None if self._authentication is None else self._authentication(),
                    handshaken=None if self._audit is None else self._note_handshake,
                    closed=self._forget,
                )
            except OSError:
                sock.close()  # the peer left between the handshake and now
                continue
            self.connections[connection] = None
            self._limits.opened(connection, self.name, self._loop.time())
            if self._authentication is not None:
                self._loop.call_later(AUTHENTICATION_TIMEOUT_S, self._close_unauthenticated, connection)

    def _complain_of_descriptors(self, highest: int) -> None:
        now = self._loop.time()
        if now >= self._silent_until:
            self._silent_until = now + COMPLAIN_AGAIN_S
            log.error(
                "listener %s refuses connections: %d files and connections are open, and the rest of what the system "
                "allows is kept for files; raise it (ulimit -n), or lower max.connections",
                self.name,
                highest,
            )

    def _is_refused(self, sock: socket.socket, host: str) -> bool:
        """Whether a new connection has been refused; one of those that come too fast is closed later (KIP-612)."""
        limits = self._limits
        delay_s = limits.throttled_s(host, self._loop.time())
        if delay_s:
            log.debug("refusing %s at listener %s: its connections come too fast", host, self.name)
            if limits.delayed < MOST_DELAYED:
                limits.delayed += 1
                self._loop.call_later(delay_s, self._close_delayed, sock)
            else:
                sock.close()
            return True
        refusal = limits.refusal(host)
        if refusal:
            log.warning("refusing %s at listener %s: %s", host, self.name, refusal)
            sock.close()
        return bool(refusal)

    def _close_delayed(self, sock: socket.socket) -> None:
        self._limits.delayed -= 1
        sock.close()

    def _close_unauthenticated(self, connection: Connection) -> None:
        authentication = connection.authentication
        if not connection.closed and authentication is not None and authentication.principal is None:
            log.info("closing %s: it has not authenticated in time", connection.describe())
            if self._audit is not None:
                reason = "it has not authenticated in time"
                self._audit.not_authenticated(connection, None, authentication.mechanism, reason)
            connection.close()

    def _note_handshake(self, connection: Connection, problem: str | None) -> None:
        assert self._audit is not None
        if problem is not None:
            self._audit.not_authenticated(connection, None, "TLS", problem)
        elif connection.authentication is None and connection.principal != ANONYMOUS:
            self._audit.authenticated(connection, connection.principal, "TLS")

    def _pause_accepting(self, listening: socket.socket, wait_s: float | None) -> None:
        """For a while or, with None, until other connections are closed; new ones wait in the system's queue."""
        self._loop.remove_reader(listening.fileno())
        if wait_s is None:
            if not self._is_full:
                self._is_full = True
                log.warning("listener %s accepts nothing: there are too many connections (max.connections)", self.name)
            self._limits.when_room(partial(self._resume_accepting, listening))
        else:
            self._loop.call_later(wait_s, self._resume_accepting, listening)

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._limits.closed(connection)
        if self._disconnected is not None:
            self._disconnected(connection.connection_id)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._is_full = False
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _close_idle(self) -> None:
        limit = self._loop.time() - self._idle_limit_seconds
        for connection in [c for c in self.connections if c.last_active < limit and c.idle]:
            log.info(
                "closing %s: idle for %.0f s (connections.max.idle.ms)", connection.describe(), self._idle_limit_seconds
            )
            connection.close()
        self._idle_timer = self._loop.call_later(self._idle_limit_seconds / 2, self._close_idle)

    def close_sockets(self) -> None:
        """Stop accepting; connections go on."""
        self._close(self._sockets)
        self.unshare()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _close(self, sockets: list[socket.socket]) -> None:
        for sock in sockets:
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(sock.fileno())
            sock.close()
        sockets.clear()

    def retire(self) -> None:
        """Stop accepting, and close each connection when its requests have been answered: one may be the request that
        removes this listener."""
        self.close_sockets()
        self._close_answered(self._loop.time() + RETIREMENT_SECONDS)

    def _close_answered(self, deadline: float) -> None:
        is_over = self._loop.time() >= deadline
        for connection in [c for c in self.connections if is_over or c.idle]:
            connection.close()
        if self.connections:
            self._loop.call_later(RETIREMENT_POLL_SECONDS, self._close_answered, deadline)

    def close(self) -> None:
        """Stop accepting, and close every connection."""
        self.close_sockets()
        for connection in list(self.connections):
            connection.close()
