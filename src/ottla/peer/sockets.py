"""Opening connections to other brokers: a seam, so that a test can do without a network."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Open a connection to host and port. Raises OSError.

Of the socket are used `recv_into`, `send`, `fileno` and `close`, all without waiting.
"""

Resolve = Callable[[str], Awaitable[Collection[str]]]
"""The addresses of a host, as text; none if it cannot be resolved at the moment."""


async def resolve(host: str) -> frozenset[str]:
    """The addresses of a host, as text; none if it cannot be resolved now."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


async def connect(host: str, port: int) -> socket.socket:
    """A TCP connection, to the first of the host's addresses that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
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
