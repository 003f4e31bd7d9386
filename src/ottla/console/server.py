"""Runs the console at an address of this machine."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from ottla.console.app import application
from ottla.console.cluster import ClusterView


class NotLoopback(ValueError):
    """The address could be reached from elsewhere, and the console has no login."""


def listening(host: str, port: int) -> socket.socket:
    """A socket at a loopback address. Raises NotLoopback, OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    if not ipaddress.ip_address(str(address[0])).is_loopback:
        raise NotLoopback(
            f"the console has no login, so it listens on this machine only, not at {host}: "
            f"reach it from elsewhere through `ssh -L {port}:127.0.0.1:{port}`"
        )
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
        opened.listen()  # before the address is shown: a browser that comes at once waits, and is not refused
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from error
    return opened


def run(
    bootstrap: str, properties: Mapping[str, str], bound: socket.socket, ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until a signal; `ready` gets the address."""
    asyncio.run(_run(bootstrap, properties, bound, ready))


async def _run(
    bootstrap: str, properties: Mapping[str, str], bound: socket.socket, ready: Callable[[str], None]
) -> None:
    view = ClusterView(bootstrap, properties)
    config = uvicorn.Config(
        application(view), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    host, port = bound.getsockname()[:2]
    ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    try:
        await server.serve([bound])
    finally:
        view.close()


class _Server(uvicorn.Server):
    """Stops at a signal without raising it again: a console that was stopped has done what it should."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `stop`."""
        yield

    def stop(self) -> None:
        """Stop, and hang up on the viewers."""
        self.should_exit = True
