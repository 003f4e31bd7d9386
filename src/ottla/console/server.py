"""Runs the console at an address."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import uvicorn

from ottla.console.access.access import Access, Settings
from ottla.console.app import application
from ottla.console.metrics import ConsoleMetrics, Counts
from ottla.impatience import ImpatientProtocol
from ottla.local_names import is_loopback
from ottla.metrics.process import serving_metrics
from ottla.tasks import Tasks

MOST_CONNECTIONS: Final = 500
TIDY_EVERY_S: Final = 30.0
RENEW_EVERY_S: Final = 10.0


class Exposed(ValueError):
    """The address could be reached from elsewhere, without the protection that this takes."""


class Encryption(NamedTuple):
    """Files in PEM: the certificates, and their key."""

    certificate: Path
    key: Path


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
        opened.listen()  # before the address is shown: a browser that comes at once waits, and is not refused
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from error
    return opened


def is_reached_here_only(host: str) -> bool:
    """Whether only this machine reaches an address. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(is_loopback(str(address[0])) for *_, address in found)


def check_exposure(host: str, port: int, *, has_login: bool, is_encrypted: bool, allows_plain_http: bool) -> None:
    """Raises Exposed for an address beyond this machine without a login, or without TLS that was not waived.

    Raises OSError if there is no such host.
    """
    if is_reached_here_only(host):
        return
    tunnel = f"reach a console on this machine through `ssh -L {port}:127.0.0.1:{port}`"
    if not has_login:
        raise Exposed(
            f"without a login the console listens on this machine only, not at {host}: add --login, or {tunnel}"
        )
    if not is_encrypted and not allows_plain_http:
        raise Exposed(
            f"at {host} passwords would be sent in plain text: give --tls-certificate and --tls-key, add "
            f"--allow-plain-http on a network that you trust, or {tunnel}"
        )


def run(
    settings: Settings,
    bound: socket.socket,
    ready: Callable[[str], None] = lambda url: None,
    encryption: Encryption | None = None,
    *,
    while_stdin_open: bool = False,
    metrics_listeners: str = "",
) -> None:
    """Serve until a signal, or until standard input ends; `ready` gets the address.

    Metrics are served at `metrics_listeners`, as brokers' `metrics.listeners`. Raises InvalidConfig, OSError.
    """
    asyncio.run(_run(settings, bound, ready, encryption, while_stdin_open, metrics_listeners))


async def _run(
    settings: Settings,
    bound: socket.socket,
    ready: Callable[[str], None],
    encryption: Encryption | None,
    while_stdin_open: bool,
    metrics_listeners: str,
) -> None:
    host, port = bound.getsockname()[:2]
    access = Access(replace(settings, port=port))
    counts = Counts()
    metrics = ConsoleMetrics(access, counts, asyncio.get_running_loop())
    config = uvicorn.Config(
        application(access, counts),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http=ImpatientProtocol,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
        server_header=False,
        # the address that a proxy names is believed where there is one, and from this machine alone
        proxy_headers=settings.has_proxy,
        ssl_certfile=None if encryption is None else encryption.certificate,
        ssl_keyfile=None if encryption is None else encryption.key,
    )
    tasks = Tasks()
    tasks.spawn(_tidy(access), "console-tidy")
    tasks.spawn(_renew(access), "console-renew")
    server = _Server(config, access)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    if while_stdin_open:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, loop, server)
    ready(f"{'http' if encryption is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}/")
    try:
        with serving_metrics(metrics_listeners, metrics.gather, metrics.health, metrics.lives):
            metrics.is_serving = True
            await server.serve([bound])
            metrics.is_serving = False
    finally:
        await tasks.close()
        access.close()
        await access.settings.trail.close()


async def _tidy(access: Access) -> None:
    """End sessions whose time is over, with their connections and passwords, also if nobody comes back to them."""
    while True:
        await asyncio.sleep(TIDY_EVERY_S)
        access.sessions.expire()
        await access.settings.trail.flush()


async def _renew(access: Access) -> None:
    """Renew the tokens of users before they end."""
    while access.openid is not None:
        await asyncio.sleep(RENEW_EVERY_S)
        await access.openid.renew()


def _stop_at_end(loop: asyncio.AbstractEventLoop, server: "_Server") -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        server.stop()


class _Server(uvicorn.Server):
    """Stops at a signal without raising it again: a console that was stopped has done what it should."""

    def __init__(self, config: uvicorn.Config, access: Access) -> None:
        super().__init__(config)
        self._access = access

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `stop`."""
        yield

    def stop(self) -> None:
        """Stop, and hang up on the viewers."""
        self.should_exit = True
        self._access.end_streams()
