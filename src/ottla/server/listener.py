"""Listening sockets: accept, count, refuse what is too much, and close everything at the end."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from ottla.server.connection import SCRATCH_BYTES, Connection, FrameHandler

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
ACCEPTS_PER_WAKEUP: Final = 64
ACCEPT_PAUSE_SECONDS: Final = 0.1
SEND_BUFFER_BYTES: Final = 1 << 20


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """A non-blocking socket for each address of `host` (empty: every interface), bound but not listening yet.

    They have one port, chosen by the system for 0. OSError says of which address, why, and what to do.
    """
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
        max_frame_bytes: int,
        max_connections: int,
        max_connections_per_ip: int,
        per_ip_overrides: Mapping[str, int],
        idle_limit_seconds: float,
        next_connection_id: Callable[[], int],
    ) -> None:
        self.name = name
        self.connections: dict[Connection, None] = {}
        self._loop = loop
        self._handle_frame: FrameHandler | None = None
        self._disconnected: Callable[[int], None] | None = None
        self._max_frame_bytes = max_frame_bytes
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._per_ip_overrides = per_ip_overrides
        self._per_ip: Counter[str] = Counter()
        self._idle_limit_seconds = idle_limit_seconds
        self._next_connection_id = next_connection_id
        self._sockets: list[socket.socket] = []
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._idle_timer: asyncio.TimerHandle | None = None

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

    def start(self, handle_frame: FrameHandler, disconnected: Callable[[int], None]) -> None:
        """Accept from now on, hand every frame to `handle_frame`, and tell `disconnected` the id of each connection
        that is closed."""
        self._handle_frame = handle_frame
        self._disconnected = disconnected
        for sock in self._sockets:
            sock.listen(BACKLOG)
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._idle_timer = self._loop.call_later(self._idle_limit_seconds / 2, self._close_idle)

    def _accept(self, listening: socket.socket) -> None:
        assert self._handle_frame is not None
        for _ in range(ACCEPTS_PER_WAKEUP):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory: the loop would spin on the waiting connection.
                log.error("listener %s cannot accept: %s; trying again in a moment", self.name, error)
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, listening)
                return
            refusal = self._refusal(address[0])
            if refusal:
                log.warning("refusing %s at listener %s: %s", address[0], self.name, refusal)
                sock.close()
                continue
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                connection = Connection(
                    sock,
                    loop=self._loop,
                    scratch=self._scratch,
                    handle_frame=self._handle_frame,
                    max_frame_bytes=self._max_frame_bytes,
                    listener=self.name,
                    connection_id=self._next_connection_id(),
                    closed=self._forget,
                )
            except OSError:
                sock.close()  # the peer left between the handshake and now
                continue
            self.connections[connection] = None
            self._per_ip[connection.client_host] += 1

    def _refusal(self, host: str) -> str:
        if len(self.connections) >= self._max_connections:
            return f"it has {len(self.connections)} connections (max.connections)"
        from_host = self._per_ip[host]
        if from_host >= self._per_ip_overrides.get(host, self._max_connections_per_ip):
            return f"this address has {from_host} connections (max.connections.per.ip)"
        return ""

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._per_ip[connection.client_host] -= 1
        if not self._per_ip[connection.client_host]:
            del self._per_ip[connection.client_host]
        if self._disconnected is not None:
            self._disconnected(connection.connection_id)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
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
        """Accept no more; connections go on."""
        for sock in self._sockets:
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def close(self) -> None:
        """Accept no more and close every connection."""
        self.close_sockets()
        for connection in list(self.connections):
            connection.close()
