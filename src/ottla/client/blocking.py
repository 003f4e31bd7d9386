"""The blocking driver: one connection to one broker, for tools and for Spark's tasks."""

import selectors
import socket
import ssl
import time
import weakref
from collections.abc import Collection
from typing import Any, Final, Self

from ottla.client.addresses import Address
from ottla.client.errors import BrokerRefused, BrokerSilent, BrokerUnavailable, ClientError, TlsFailed
from ottla.client.sansio.handshake import handshake
from ottla.client.sansio.session import LARGEST_FRAME_BYTES, Answer, Memory, Session, State, fresh_memory
from ottla.client.security import PLAIN, Security
from ottla.client.tls_failures import explained
from ottla.errors import sentence
from ottla.protocol.schema import Message

CONNECT_TIMEOUT_S: Final = 10.0
TIMEOUT_SLACK_S: Final = 0.25
"""A socket's own limit is set again only when it is off by more: setting it is a call of the system."""


class Connection:
    """One connection. Requests are answered in the order in which they were sent; `receive` may come long after `send`.

    For one thread at a time. Every method may raise `ClientError`; apart from `UnsupportedRequest`, which concerns one
    request, that closes the connection, and so does an interruption (Ctrl-C) while it sends or receives, since the
    answers to come could no longer be told apart.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        timeout_s: float,
        security: Security = PLAIN,
        memory: Memory = fresh_memory,
        largest_frame_bytes: int = LARGEST_FRAME_BYTES,
    ) -> None:
        """Connect, ask for versions and authenticate, within `timeout_s`, which then holds for each answer as well."""
        self.address = address
        self.timeout_s = timeout_s
        self.used_at = time.monotonic()
        mechanism = None if security.mechanism is None else security.mechanism()
        self._socket = self._connected(security)
        self._socket_timeout_s = timeout_s
        self._socket.settimeout(timeout_s)
        weakref.finalize(self, self._socket.close)  # connections are kept in caches, which drop what is old
        self._session = Session(
            str(address),
            client_id,
            handshake=handshake(mechanism),
            memory=memory,
            largest_frame_bytes=largest_frame_bytes,
        )
        try:
            deadline = time.monotonic() + timeout_s
            while self._session.state is State.NEGOTIATING:
                self._flush()
                self._read(deadline)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it is of no further use."""
        return self._session.state is State.CLOSED

    def close(self) -> None:
        """Hang up. A second time is harmless."""
        self._session.close()
        self._socket.close()

    def version(self, api_key: int, newest: int | None = None) -> int:
        """The newest version of an API that both ends know, not above `newest`. Raises `UnsupportedRequest`."""
        return self._session.version(api_key, newest)

    def ask(self, request: Message, newest: int | None = None) -> Any:
        """The answer to a request, in the newest version that both ends know, not above `newest`."""
        assert request.API_KEY is not None
        self.send(request, self.version(request.API_KEY, newest))
        return self.receive()

    def send(self, request: Message, version: int) -> None:
        """Send a request, without waiting for its answer."""
        self._check_open()
        self._session.send(request, version)
        try:
            self._flush()
        except BaseException:
            self.close()
            raise

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        self._check_open()
        try:
            deadline = time.monotonic() + self.timeout_s
            while (answer := self._read(deadline)) is None:
                pass
        except BaseException:
            self.close()
            raise
        self.used_at = time.monotonic()
        return answer.message

    def receive_part(self, deadline: float) -> Answer | None:
        """Read once; returns the answer to the oldest request without one, if that completes it before `deadline`."""
        self._check_open()
        try:
            answer: Answer | None = self._read(deadline)
        except BaseException:
            self.close()
            raise
        if answer is not None:
            self.used_at = time.monotonic()
        return answer

    @property
    def has_decrypted(self) -> bool:
        """Whether TLS holds bytes that were received already: no selector reports them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """The socket, for a selector."""
        return self._socket.fileno()

    # -- the socket ----------------------------------------------------------------------------------------------------

    def _connected(self, security: Security) -> socket.socket:
        timeout_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
        try:
            opened = socket.create_connection(self.address, timeout_s)
        except ConnectionRefusedError as error:
            raise BrokerRefused(f"{self.address} cannot be reached: {_reason(error)}") from error
        except OSError as error:
            raise BrokerUnavailable(f"{self.address} cannot be reached: {_reason(error)}") from error
        except ValueError as error:  # as for `a..b`: brokers advertise any text
            raise BrokerUnavailable(f"{self.address} cannot be the address of a broker: {error}") from error
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is None:
                return opened
            return security.tls.wrap_socket(opened, server_hostname=self.address.host)
        except TimeoutError as error:
            opened.close()
            raise self._silent() from error
        except OSError as error:
            opened.close()
            raise TlsFailed(f"TLS with {self.address} failed: {explained(error)}") from error
        except BaseException:
            opened.close()
            raise

    def _check_open(self) -> None:
        if self.is_closed:
            raise BrokerUnavailable(f"the connection to {self.address} was closed")

    def _flush(self) -> None:
        pieces = self._session.outgoing()
        if pieces:
            self.used_at = time.monotonic()
            self._limit(self.timeout_s)  # the answer before may have left little of its own
            try:
                self._socket.sendall(b"".join(pieces))
            except TimeoutError as error:
                raise self._silent() from error
            except OSError as error:
                raise self._broken(error) from error

    def _limit(self, timeout_s: float) -> None:
        if abs(timeout_s - self._socket_timeout_s) > TIMEOUT_SLACK_S:
            self._socket_timeout_s = timeout_s
            self._socket.settimeout(timeout_s)

    def _read(self, deadline: float) -> Any:
        """The answer that the next bytes complete, or None. All of an answer has to come before `deadline`."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise self._silent()
        self._limit(left_s)
        try:
            count = self._socket.recv_into(self._session.buffer())
        except TimeoutError as error:
            raise self._silent() from error
        except OSError as error:
            raise self._broken(error) from error
        if not count:
            if self._session.state is State.NEGOTIATING:
                raise self._broken(ConnectionResetError("it closed the connection"))
            raise BrokerUnavailable(f"{self.address} closed the connection")
        return self._session.received(count)

    def _broken(self, error: OSError) -> ClientError:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return TlsFailed(f"TLS with {self.address} failed: {explained(error)}")
        if isinstance(self._socket, ssl.SSLSocket) and self._session.state is State.NEGOTIATING:
            # in TLS 1.3 a client's certificate is judged after the handshake, and the alert may be lost on the way
            return TlsFailed(
                f"{self.address} hung up after the TLS handshake: if it asks for a certificate of this client, set "
                "ssl.certificate.location and ssl.key.location"
            )
        return BrokerUnavailable(f"{self.address} broke off: {_reason(error)}")

    def _silent(self) -> ClientError:
        return BrokerSilent(f"{self.address} did not answer within {self.timeout_s:g} s")


def receive_each(connections: Collection[Connection]) -> dict[Connection, Any]:
    """One answer of each connection, read as they come; a `ClientError` for a broker that gives none in its time.

    Each has its connection's timeout from now on, so that several silent brokers take no longer than one.
    """
    found: dict[Connection, Any] = {}
    now = time.monotonic()
    deadlines = {connection: now + connection.timeout_s for connection in connections}
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while deadlines:
            for connection in _ready(selector, deadlines):
                descriptor = connection.fileno()
                try:
                    answer = connection.receive_part(deadlines[connection])
                except ClientError as error:
                    found[connection] = error
                else:
                    if answer is None:
                        continue
                    found[connection] = answer.message
                del deadlines[connection]
                selector.unregister(descriptor)
    return found


def _ready(selector: selectors.BaseSelector, deadlines: dict[Connection, float]) -> list[Connection]:
    """Connections with something to read; if none has anything until the first deadline, those that are late."""
    ready = [connection for connection in deadlines if connection.has_decrypted]
    if not ready:
        left_s = max(min(deadlines.values()) - time.monotonic(), 0.0)
        descriptors = {key.fd for key, _ in selector.select(left_s)}
        ready = [connection for connection in deadlines if connection.fileno() in descriptors]
    now = time.monotonic()
    return ready or [connection for connection, deadline in deadlines.items() if deadline <= now]


def _reason(error: OSError) -> str:
    return (error.strerror or sentence(error)).lower()
