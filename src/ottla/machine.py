"""What a broker uses of the machine it runs on, as one argument: the real one, or one of a simulation."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from ottla.clock import Clock, SystemClock
from ottla.cluster.store.base import MetadataStore
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.replication.group_commit import GroupCommit, NewFlusher
from ottla.server.listener import OpenSockets, open_sockets

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""A non-blocking, connected socket to a host and port. Raises OSError."""


async def connect(host: str, port: int) -> socket.socket:
    """Over TCP, to the first address of the host that answers. Raises OSError with what the last one said."""
    loop = asyncio.get_running_loop()
    problem: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise problem


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of `ottla serve`, unless something is said to be different."""

    clock: Clock = field(default_factory=SystemClock)
    fs: FileSystem = field(default_factory=RealFileSystem)
    open_sockets: OpenSockets = open_sockets
    connect: Connect = connect
    new_flusher: NewFlusher = GroupCommit
    open_store: Callable[[Path], MetadataStore] | None = None
    """The store of the cluster's metadata, given the file it would be in; None: what the settings say."""
