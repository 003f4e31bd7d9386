"""Opening connections to other brokers: a seam, so that a test can do without a network."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final, Protocol, cast

_RECORD_BYTES: Final = 1 << 14


class Stream(Protocol):
    """What a connection needs of a socket, all without waiting."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Bytes of the peer; 0 at their end. Raises BlockingIOError if there are none now."""

    def send(self, data: memoryview, /) -> int:
        """How many bytes were sent. Raises BlockingIOError if the network takes none now: send the same again."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""

    def close(self) -> None:
        """Hang up."""


Connect = Callable[[str, int], Awaitable[Stream]]
"""Open a connection to host and port. Raises OSError."""

Resolve = Callable[[str], Awaitable[Collection[str]]]
"""The addresses of a host, as text; none if it cannot be resolved at the moment."""


async def resolve(host: str) -> frozenset[str]:
    """The addresses of a host, as text; none if it cannot be resolved now."""
    try:
        found = await _looked_up(host or None, 0)
    except OSError:
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


async def _looked_up(host: str | None, port: int) -> list[Any]:
    """What `getaddrinfo` finds. Raises OSError, also for what cannot be a name, as `a..b`: nodes register any text."""
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as problem:
        raise OSError(f"{host!r} cannot be the name of a host: {problem}") from problem


async def connect(host: str, port: int) -> socket.socket:
    """A TCP connection, to the first of the host's addresses that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, kind, protocol, _, address in await _looked_up(host, port):
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(opened, address)
        except OSError as error:
            opened.close()
            problem = error
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise problem or OSError(f"{host} has no address")


async def connect_with_tls(context: ssl.SSLContext, host: str, port: int) -> Stream:
    """`connect`, and TLS above it. Raises OSError."""
    opened = await connect(host, port)
    try:
        secured = TlsSocket(context, opened, host)
        await secured.shake_hands()
    except BaseException:
        opened.close()
        raise
    return secured


class TlsSocket:
    """A socket that waits for nothing, with TLS between its bytes and those of the network."""

    def __init__(self, context: ssl.SSLContext, opened: socket.socket, host: str) -> None:
        self._socket = opened
        self._from_network = ssl.MemoryBIO()
        self._to_network = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._from_network, self._to_network, server_hostname=host)
        self._unsent = b""
        self._encrypted = 0
        """Bytes given to `send` whose encrypted form the network has not taken yet."""

    async def shake_hands(self) -> None:
        """Have a secured connection. Raises OSError, as ssl.SSLError if the other end is not trusted."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(self._socket, self._to_network.read())
                received = await loop.sock_recv(self._socket, _RECORD_BYTES)
                if not received:
                    raise ConnectionResetError("the connection was closed in the midst of the TLS handshake") from None
                self._from_network.write(received)
            except ssl.SSLError:
                with suppress(OSError):
                    self._socket.send(self._to_network.read())  # why, for the log of the other end
                raise
            else:
                await loop.sock_sendall(self._socket, self._to_network.read())
                return

    def recv_into(self, buffer: memoryview) -> int:
        """Bytes of the peer; 0 at their end. Raises BlockingIOError if there are none now."""
        while True:
            try:
                return cast("int", self._tls.read(len(buffer), buffer))
            except ssl.SSLWantReadError:
                received = self._socket.recv(_RECORD_BYTES)
                if not received:
                    return 0
                self._from_network.write(received)
            except ssl.SSLZeroReturnError:
                return 0

    def pending(self) -> int:
        """Bytes that can be read although the network has none."""
        return self._tls.pending() + self._from_network.pending

    def send(self, data: memoryview) -> int:
        """How many bytes were sent. Raises BlockingIOError if the network takes none now: send the same again."""
        if not self._encrypted:
            self._encrypted = self._tls.write(data[:_RECORD_BYTES])
        self._flush()
        sent, self._encrypted = self._encrypted, 0
        return sent

    def _flush(self) -> None:
        self._unsent += self._to_network.read()
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def fileno(self) -> int:
        """Return the descriptor of the underlying socket."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket below."""
        self._socket.close()
