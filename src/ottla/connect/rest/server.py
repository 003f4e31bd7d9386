"""A worker with its REST API: what `ottla connect serve` runs, and tests inside their process."""

import ipaddress
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import uvicorn

from ottla.connect.errors import ConfigError, ConnectError
from ottla.connect.rest.app import application
from ottla.connect.runtime.connector_log import ConnectorLog
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.worker import Worker
from ottla.connect.runtime.worker_settings import worker_settings

_START_S: Final = 30.0
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Server:
    """A worker that listens. `start` and `stop`, each once; `url` is where.

    settings: a worker's, by Kafka Connect's names. Raises ConfigError; ConnectError if the address is taken.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        known = worker_settings(Secrets().resolve(settings))
        host, port = _address(known.listeners)
        self._socket = _listening(host, port)
        bound = self._socket.getsockname()[1]
        self.host: str = known.rest_advertised_host_name or (_own_name() if host in _EVERYWHERE else host)
        self.port: int = known.rest_advertised_port or bound
        self.worker = Worker(settings, f"{self.host}:{self.port}")
        self._lines = ConnectorLog(self.worker.environment.secrets)
        config = uvicorn.Config(
            application(
                self.worker,
                self._lines,
                origins=[origin.strip() for origin in known.access_control_allow_origin.split(",") if origin.strip()],
                is_local=_is_loopback(self._socket.getsockname()[0]),
            ),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=([self._socket],), name="connect rest", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the REST API is."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Answer requests, then read the state and begin. Raises ConnectError."""
        self._lines.install()
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._uvicorn.started and time.monotonic() < deadline:
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

    def _quiet(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(_START_S)
        self._socket.close()
        self._lines.remove()


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _own_name() -> str:
    """The name by which others reach this machine; one that leads nowhere is of no use."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def _address(listeners: str) -> tuple[str, int]:
    first = listeners.split(",")[0].strip()
    parts = urlsplit(first if "//" in first else f"http://{first}")
    try:
        port = 8083 if parts.port is None else parts.port
    except ValueError:
        port = -1
    if parts.scheme.lower() != "http" or port < 0:
        raise ConfigError(f"listeners is http://HOST:PORT, not {listeners!r}", "listeners")
    return parts.hostname or "", port


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as failure:
        listener.close()
        reason = (failure.strerror or str(failure)).lower()
        raise ConnectError(
            f"the REST API cannot listen at {host or '*'}:{port}: {reason}; name another port with listeners"
        ) from None
    return listener
