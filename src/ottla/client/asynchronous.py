"""The asyncio driver: requests to one broker, over one connection that is opened when it is needed.

When the connection breaks, requests that are not answered yet fail, and the next request opens another one.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.client.addresses import Address
from ottla.client.errors import AuthenticationFailed, BrokerRefused, BrokerUnavailable, ClientError, TlsFailed
from ottla.client.login import LoggedIn
from ottla.client.sansio.session import LARGEST_FRAME_BYTES, Answer, Handshake, Session, State
from ottla.client.sockets import Connect, Stream, connect
from ottla.client.tls_failures import explained
from ottla.protocol.schema import Message

log = logging.getLogger(__name__)

READS_PER_TURN: Final = 64
"""TLS records of 16 KB that are decrypted in one turn of the loop: some 3 ms."""


def _ignore() -> None:
    """Nobody waits for a connection without requests."""


def _no_handshake() -> Handshake | None:
    """Brokers among each other know their versions."""
    return None


class AsyncConnection:
    """One connection to one broker. On the loop's thread."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        connect: Connect = connect,
        lost: Callable[[], None] = _ignore,
        handshake: Callable[[], Handshake | None] = _no_handshake,
        largest_frame_bytes: int = LARGEST_FRAME_BYTES,
    ) -> None:
        """`lost` is called when the other end closes or breaks the connection, request or no request. `handshake`
        makes the steps that come first on each connection, see `ottla.client.sansio.handshake`."""
        self.host = host
        self.port = port
        self._name = str(Address(host, port))
        self._client_id = client_id
        self._connect = connect
        self._lost = lost
        self._handshake = handshake
        self._largest_frame_bytes = largest_frame_bytes
        self._link: _Link | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"AsyncConnection({self._name})"

    async def ask(self, request: Message, version: int | None = None, *, timeout_s: float) -> Any:
        """The answer to a request; `version` None: the newest that both ends know, if the handshake asked for that.

        Raises `BrokerUnavailable`, which leaves open whether the request was carried out, and `UnsupportedRequest`.
        A request that is not answered in time, or whose caller is cancelled, closes the connection, since its answer
        would come before all others.
        """
        assert request.API_KEY is not None
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._opened()
                if version is None:
                    version = link.session.version(request.API_KEY)
                answer = link.send(request, version)
                try:
                    return await answer
                except asyncio.CancelledError:
                    link.close(BrokerUnavailable(f"{self._name}: the request before was given up"))
                    raise
        except TimeoutError:
            raise BrokerUnavailable(f"{self._name} did not answer within {timeout_s:g} s") from None

    async def open(self, *, timeout_s: float) -> Session:
        """Have a connection before there is anything to ask; returns its session, for `Session.version`.

        Raises `BrokerUnavailable`, `BrokerRefused`, and what the handshake raises.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return (await self._opened()).session
        except TimeoutError:
            raise BrokerUnavailable(f"{self._name} cannot be reached within {timeout_s:g} s") from None

    async def _opened(self) -> "_Link":
        async with self._opening:
            if self._link is None or self._link.is_closed:
                try:
                    opened = await self._connect(self.host, self.port)
                except ConnectionRefusedError as error:
                    raise BrokerRefused(f"{self._name} cannot be reached: {error}") from error
                except ssl.SSLError as error:
                    raise TlsFailed(f"TLS with {self._name} failed: {explained(error)}") from error
                except OSError as error:
                    raise BrokerUnavailable(f"{self._name} cannot be reached: {error}") from error
                session = Session(
                    self._name,
                    self._client_id,
                    handshake=self._handshake(),
                    largest_frame_bytes=self._largest_frame_bytes,
                )
                self._link = _Link(opened, asyncio.get_running_loop(), self._name, session, self._lost)
                await self._link.ready()
            elif self._link.renewal_is_due:
                await self._link.renew()
            if self._link.is_closed:  # it was ready, and was lost before this task had its turn
                raise BrokerUnavailable(f"{self._name} has hung up")
            return self._link

    def close(self) -> None:
        """Hang up; requests under way fail with `BrokerUnavailable`."""
        if self._link is not None:
            self._link.close(BrokerUnavailable(f"the connection to {self._name} was closed"))


class _Link:
    """A socket and its session: what is still to be written, and the futures of the answers to come."""

    def __init__(
        self,
        opened: Stream,
        loop: asyncio.AbstractEventLoop,
        name: str,
        session: Session,
        lost: Callable[[], None],
    ) -> None:
        self.session = session
        self.is_closed = False
        self._socket = opened
        self._loop = loop
        self._name = name
        self._lost = lost
        self._pending: Callable[[], int] | None = getattr(opened, "pending", None)
        """With TLS: how much can be read although the socket has nothing."""
        self._login = opened if isinstance(opened, LoggedIn) else None
        self._reads_again = False
        self._ready: asyncio.Future[None] | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: deque[memoryview] = deque()
        loop.add_reader(opened.fileno(), self._readable)
        self._flush()

    async def ready(self) -> None:
        """Return when the handshake is over. Raises what ends it."""
        if self.is_closed:
            raise BrokerUnavailable(f"{self._name} has hung up")
        if self.session.state is State.READY:
            return
        self._ready = self._loop.create_future()
        try:
            await self._ready
        except asyncio.CancelledError:
            self.close(BrokerUnavailable(f"{self._name}: connecting was given up"))
            raise

    @property
    def renewal_is_due(self) -> bool:
        """Whether a login has to be renewed before anything else is sent."""
        return self._login is not None and self._login.renewal_is_due

    async def renew(self) -> None:
        """Log in again, once nothing waits for an answer. A login that cannot be renewed is used until it ends.

        Raises `BrokerUnavailable` if the broker refuses it.
        """
        assert self._login is not None
        try:
            steps = await self._login.renewal()
        except OSError as problem:
            log.warning("the login at %s is not renewed: %s", self._name, problem)
            return
        if self._waiting:
            await asyncio.wait(self._waiting)
        if self.is_closed:
            raise BrokerUnavailable(f"{self._name} has hung up")
        try:
            self.session.renew(steps)
            self._flush()
            await self.ready()
        except (AuthenticationFailed, OSError) as refused:
            raise BrokerUnavailable(str(refused)) from refused

    def send(self, request: Message, version: int) -> "asyncio.Future[Any]":
        """Queue a request; the future yields its answer."""
        self.session.send(request, version)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(answer)
        self._flush()
        return answer

    def close(self, problem: ClientError) -> None:
        """Hang up; what waits fails with `problem`."""
        if self.is_closed:
            return
        self.is_closed = True
        self.session.close()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._unsent.clear()
        for answer in (*self._waiting, *(() if self._ready is None else (self._ready,))):
            if not answer.done():
                answer.set_exception(problem)
        self._waiting.clear()

    def _lose(self, problem: ClientError) -> None:
        """The other end is gone, or is no broker."""
        self.close(problem)
        self._lost()

    def _flush(self) -> None:
        was_idle = not self._unsent
        self._unsent += [memoryview(piece) for piece in self.session.outgoing()]
        if was_idle and self._unsent:
            self._writable()

    def _writable(self) -> None:
        while self._unsent:
            piece = self._unsent[0]
            try:
                sent = self._socket.send(piece)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket.fileno(), self._writable)
                return
            except OSError as error:
                self._lose(BrokerUnavailable(f"{self._name}: {error}"))
                return
            if sent < len(piece):
                self._unsent[0] = piece[sent:]
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        """Read what is there, a part of it in each turn of the loop: a fast sender always has more."""
        for _ in range(READS_PER_TURN):
            if not (self._read() and self._pending is not None and self._pending()):
                return
        if not self._reads_again:
            self._reads_again = True
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._reads_again = False
        if not self.is_closed:
            self._readable()

    def _read(self) -> bool:
        """Take in what is there; returns whether there may be more."""
        try:
            count = self._socket.recv_into(self.session.buffer())
        except (BlockingIOError, InterruptedError):
            return False
        except ssl.SSLError as error:  # an alert: in TLS 1.3 the handshake is over before ours is judged
            self._lose(TlsFailed(f"TLS with {self._name} failed: {explained(error)}"))
            return False
        except OSError as error:
            self._lose(BrokerUnavailable(f"{self._name}: {error}"))
            return False
        if count == 0:
            self._lose(BrokerUnavailable(f"{self._name} has hung up"))
            return False
        try:
            received = self.session.received(count)
        except ClientError as error:
            self._lose(error)
            return False
        if received is not None:
            self._answer(received)
        elif self._ready is not None and not self._ready.done():
            self._flush()
            if self.session.state is State.READY and not self.is_closed:
                self._ready.set_result(None)
        return not self.is_closed

    def _answer(self, received: Answer) -> None:
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(received.message)
