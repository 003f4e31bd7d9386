"""The addresses of a worker's REST API, and whether it may listen there without a login."""

import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ottla.connect.errors import ConfigError, ConnectError
from ottla.connect.runtime.worker_settings import WorkerSettings
from ottla.local_names import is_loopback

_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Address(NamedTuple):
    """One of `listeners`."""

    scheme: str
    host: str
    port: int


class Listener(NamedTuple):
    """A bound socket, and the address that it was asked for with."""

    address: Address
    socket: socket.socket

    @property
    def port(self) -> int:
        """Also where any free one was asked for."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.socket.getsockname()[0])

    @property
    def name(self) -> str:
        """The host by which others reach it."""
        return own_name() if self.address.host in _EVERYWHERE else self.address.host


def addresses(settings: WorkerSettings) -> list[Address]:
    """The addresses of `listeners`, at least one. Raises ConfigError."""
    found = [_address(each.strip()) for each in settings.listeners.split(",") if each.strip()]
    if not found:
        raise ConfigError("listeners is empty: set it to http://127.0.0.1:8083", "listeners")
    return found


def advertised(settings: WorkerSettings, listeners: Sequence[Listener]) -> Listener:
    """The one by which other workers reach this one. Raises ConfigError."""
    wanted = settings.rest_advertised_listener
    found = next((each for each in listeners if wanted is None or each.address.scheme == wanted.lower()), None)
    if found is None:
        raise ConfigError(
            f"rest.advertised.listener is {wanted}, and listeners has none of that", "rest.advertised.listener"
        )
    return found


def check_exposure(settings: WorkerSettings, listener: Listener, *, has_login: bool) -> None:
    """Raise ConfigError for a listener that others than this machine reach, without a login."""
    if listener.is_loopback or has_login or settings.rest_allow_unauthenticated:
        return
    raise ConfigError(
        f"listeners has {listener.address.scheme}://{listener.address.host}:{listener.address.port}, where every "
        "client that reaches this worker could do everything: ask for a login (rest.users.file, "
        "rest.oauthbearer.jwks.endpoint.url, or https with listeners.https.ssl.client.auth=required), listen on "
        "127.0.0.1, or set rest.allow.unauthenticated=true on a network of its own",
        "listeners",
    )


def listening(address: Address) -> Listener:
    """Bind an address. Raises ConnectError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(128)
    except OSError as failure:
        listener.close()
        reason = (failure.strerror or str(failure)).lower()
        raise ConnectError(
            f"the REST API cannot listen at {address.host or '*'}:{address.port}: {reason}; name another port with "
            "listeners"
        ) from None
    return Listener(address, listener)


def own_name() -> str:
    """The name by which others reach this machine; one that leads nowhere is of no use."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def _address(text: str) -> Address:
    try:
        parts = urlsplit(text if "//" in text else f"http://{text}")
        port = 8083 if parts.port is None else parts.port
    except ValueError:
        port, parts = -1, urlsplit("")
    if parts.scheme.lower() not in ("http", "https") or port < 0 or parts.username is not None:
        raise ConfigError(f"listeners is http://HOST:PORT or https://HOST:PORT, not {text!r}", "listeners")
    return Address(parts.scheme.lower(), parts.hostname or "", port)
