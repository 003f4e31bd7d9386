"""The HTTP client of connectors: connects to the addresses that the worker allows, and reads answers up to a size."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore
import httpx

from ottla.connect.api import ConfigError, ConnectError, Targets

LARGEST_ANSWER: Final = 64 << 20
"""Bytes, once it is unpacked."""
_PACKED: Final = ("", "identity", "gzip", "x-gzip", "deflate")
"""Ways to pack an answer that are asked for. Others, and several at once, unpack a small piece to gigabytes."""


def client(headers: dict[str, str], timeout_s: float, targets: Targets) -> httpx.Client:
    """Uses the proxies of the environment only where everything is allowed: their rules decide then."""
    headers = {"Accept-Encoding": "gzip, deflate", **headers}
    if targets.everything:
        return httpx.Client(headers=headers, timeout=timeout_s)
    return httpx.Client(headers=headers, timeout=timeout_s, transport=_Transport(targets))


def whole(answer: httpx.Response, shown: str) -> httpx.Response:
    """An answer that is being received, with its body. shown: its URL, for errors. Raises ConnectError."""
    try:
        packed = answer.headers.get("content-encoding", "").strip().lower()
        if packed not in _PACKED:
            raise ConnectError(f"{shown} packed its answer as {packed:.100}, which was not asked for")
        content = bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > LARGEST_ANSWER:
                raise ConnectError(
                    f"{shown} answered with more than {LARGEST_ANSWER >> 20} MiB: have it give less at once, by a "
                    "parameter in http.url"
                )
    finally:
        answer.close()
    left_out = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in answer.headers.multi_items() if name.lower() not in left_out]
    kept: dict[str, Any] = {
        name: answer.extensions[name] for name in ("http_version", "reason_phrase") if name in answer.extensions
    }
    return httpx.Response(
        answer.status_code, headers=headers, content=bytes(content), request=answer.request, extensions=kept
    )


class _Network(httpcore.NetworkBackend):
    """Resolves names itself: what was checked is what is connected to."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # httpcore's name
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as failure:
            raise httpcore.ConnectError(str(failure)) from failure
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        refusals = {address: self._targets.refusal(host, address) for address in addresses}
        problem: Exception | None = None
        for address in (each for each in addresses if refusals[each] is None):
            try:
                return self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failure:
                problem = failure
        if problem is not None:
            raise problem
        raise ConfigError(next(filter(None, refusals.values()), f"{host} has no address"), "http.url")


class _Transport(httpx.BaseTransport):
    """httpx's own over such a network; it has no argument for one."""

    def __init__(self, targets: Targets) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=10,
            keepalive_expiry=5.0,
            network_backend=_Network(targets),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.read(),
            extensions=request.extensions,
        )
        with _as_httpx():
            answer = self._pool.handle_request(asked)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _as_httpx() -> Iterator[None]:
    try:
        yield
    except httpcore.TimeoutException as failure:
        raise httpx.TimeoutException(str(failure)) from failure
    except httpcore.UnsupportedProtocol as failure:
        raise httpx.UnsupportedProtocol(str(failure)) from failure
    except (httpcore.NetworkError, httpcore.ProtocolError) as failure:
        raise httpx.TransportError(str(failure) or type(failure).__name__) from failure
