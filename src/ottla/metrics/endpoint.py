"""An HTTP endpoint for metrics and health, in a few threads of its own: a slow reader delays no client of the process.

It serves GET only, answers HTTP/1.0 and closes the connection, and takes as many readers at a time as it has threads;
others wait in the system's queue. Nothing that it serves changes anything.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ottla.errors import InvalidConfig, sentence
from ottla.local_names import is_local_or_address, is_loopback

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

READERS: Final = 4
"""Requests that are answered at a time."""
WAITING: Final = 32
TIMEOUT_S: Final = 10.0
"""How long a reader may take to send its request, and to take the answer."""
LONGEST_S: Final = 30.0
"""How long a visit may take in all: a reader that sends or takes a byte now and then keeps no thread for good."""
TEXT: Final = "text/plain; charset=utf-8"
LOOK_S: Final = 0.5
"""Between two looks at visits that take too long: each wakes a thread."""
PATIENCE_S: Final = 1.0
"""How long a reader waits for a free thread."""
SETTING: Final = "metrics.listeners"


class Page(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


class Visitor(NamedTuple):
    """What a page may know of a request."""

    accept: str
    is_local: bool
    """Whether it came from this machine, to a local name: not from a page in a browser that rebinds its own name, and
    not through a proxy that names its client."""


_OF_PROXIES: Final = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_REAL_IP", "HTTP_VIA")

Route = Callable[[Visitor], Page]


class Address(NamedTuple):
    """Where an endpoint listens."""

    host: str
    port: int


def addresses(setting: str) -> tuple[Address, ...]:
    """The addresses of `metrics.listeners`: `http://host:port`, separated by commas. Raises InvalidConfig."""
    found = []
    for each in filter(None, map(str.strip, setting.split(","))):
        try:
            url = urlsplit(each)
            port = url.port
        except ValueError as error:
            raise InvalidConfig(f"{SETTING}: {each!r} is no address: {error}") from error
        if url.scheme != "http" or url.hostname is None or port is None or url.path.strip("/") or url.query:
            raise InvalidConfig(
                f"{SETTING}: {each!r} has to be http://host:port. For https, put a proxy before an address on 127.0.0.1"
            )
        found.append(Address(url.hostname, port))
    return tuple(found)


class Endpoint:
    """Listens at one address; `close` waits for the answers under way."""

    def __init__(self, address: Address, routes: Mapping[str, Route]) -> None:
        """Binds the address. Raises OSError."""
        self._routes = routes
        try:
            self._server = _Server(address, self._respond)
        except OSError as error:
            raise OSError(
                error.errno, f"{SETTING}: cannot listen at {address.host}:{address.port}: {error.strerror}"
            ) from error
        self.port: int = self._server.server_port
        """The port, also where the system chose it."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": LOOK_S}, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        ending = threading.Thread(target=self._server.shutdown, name="metrics", daemon=True)
        ending.start()
        with suppress(OSError):  # it looks at once when somebody comes
            socket.create_connection((self._server.server_name, self.port), 1.0).close()
        ending.join()
        self._thread.join()
        self._server.server_close()

    def _respond(self, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        page = self._page(environ)
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        start(f"{page.status.value} {page.status.phrase}", headers)
        return [b""] if environ["REQUEST_METHOD"] == "HEAD" else [page.body]

    def _page(self, environ: "WSGIEnvironment") -> Page:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return Page(b"Only GET is served here.\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        route = self._routes.get(environ.get("PATH_INFO", "").rstrip("/") or "/")
        if route is None:
            listing = "".join(f"{path}\n" for path in sorted(self._routes))
            return Page(f"This address serves:\n{listing}".encode(), status=HTTPStatus.NOT_FOUND)
        visitor = Visitor(
            environ.get("HTTP_ACCEPT", ""),
            is_loopback(environ.get("REMOTE_ADDR", ""))
            and is_local_or_address(environ.get("HTTP_HOST", ""))
            and not any(header in environ for header in _OF_PROXIES),
        )
        try:
            return route(visitor)
        except Exception as error:
            log.exception("%s cannot be answered", environ.get("PATH_INFO"))
            return Page(f"{sentence(error)}\n".encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)


class _Server(WSGIServer):
    """Answers in the threads of a pool."""

    request_queue_size = WAITING

    def __init__(self, address: Address, respond: Any) -> None:
        self.address_family = _family(address.host)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="metrics")
        try:
            super().__init__(address, _Handler)
        except BaseException:
            self._pool.shutdown()
            raise
        self.set_app(respond)
        self._free = threading.Semaphore(READERS)
        self._visits: dict[socket.socket, float] = {}
        """When each visit began that is under way."""

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's name that the library does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as after a crash, with scrapes under way
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client_address: Any) -> None:
        """Refuse the connection if all threads stay busy."""
        if self._free.acquire(timeout=PATIENCE_S):
            self._pool.submit(self._answer, request, client_address)
        else:
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Hang up on visits that take too long."""
        too_early = time.monotonic() - LONGEST_S
        for visit, began in list(self._visits.items()):
            if began < too_early:
                with suppress(OSError):
                    visit.shutdown(socket.SHUT_RDWR)

    def _answer(self, request: Any, client_address: Any) -> None:
        self._visits[request] = time.monotonic()
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the reader is gone, or too slow
        except Exception:
            log.exception("a request for metrics failed")
        finally:
            del self._visits[request]
            self._free.release()
            self.shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and wait for the answers under way."""
        super().server_close()
        self._pool.shutdown()


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, *_: object) -> None:
        """Scrapes every few seconds are not worth lines in the log."""


def _family(host: str) -> "socket.AddressFamily":
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
