"""Requests from this broker to another one, over one connection that is opened when it is needed.

Answers come in the order of the requests, so those that wait stand in a queue. What a connection that breaks still owes
is lost: whoever asked is told so, and the next request opens another one.
"""

import asyncio
import itertools
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from ottla.errors import ErrorCode, OttlaError
from ottla.peer.sockets import Connect, connect
from ottla.protocol.errors import ProtocolError
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Message

MAX_ANSWER_BYTES: Final = 1 << 30
_SIZE: Final = struct.Struct(">i")


class PeerUnavailable(OttlaError):
    """Another broker cannot be reached, does not answer in time, or hangs up."""

    code = ErrorCode.NETWORK_EXCEPTION


class PeerRefused(PeerUnavailable):
    """There is a machine at another broker's address, and nobody listens on it."""


def _nobody_asks() -> None:
    """Whoever has no request under way does not care."""


class PeerClient:
    """One connection to one broker. On the loop's thread."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        connect: Connect = connect,
        lost: Callable[[], None] = _nobody_asks,
    ) -> None:
        """`lost` is called when the other end closes or breaks the connection, request or no request."""
        self.host = host
        self.port = port
        self._client_id = client_id
        self._connect = connect
        self._lost = lost
        self._correlation_ids = itertools.count(1)
        self._link: _Link | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"PeerClient({self.host}:{self.port})"

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """The answer to a request. Raises `PeerUnavailable`; nobody knows then whether the request was carried out.

        A request that is not answered in time, or whose caller is cancelled, takes the connection along, since its
        answer would come before all others.
        """
        api_key = request.API_KEY
        assert api_key is not None
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._opened()
                answer = link.send(request, version, next(self._correlation_ids), self._client_id)
                try:
                    frame = await answer
                except asyncio.CancelledError:
                    link.close(PeerUnavailable(f"{self.host}:{self.port}: the request before was given up"))
                    raise
        except TimeoutError:
            raise PeerUnavailable(f"{self.host}:{self.port} did not answer within {timeout_s:g} s") from None
        try:
            return decode_response(api_key, version, frame)[1]
        except ProtocolError as error:
            link.close(PeerUnavailable(f"{self.host}:{self.port} answered what does not parse: {error}"))
            raise PeerUnavailable(f"{self.host}:{self.port} answered what does not parse: {error}") from error

    async def open(self, *, timeout_s: float) -> None:
        """Have a connection before there is anything to ask. Raises `PeerUnavailable`, `PeerRefused`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened()
        except TimeoutError:
            raise PeerUnavailable(f"{self.host}:{self.port} cannot be reached within {timeout_s:g} s") from None

    async def _opened(self) -> "_Link":
        async with self._opening:
            if self._link is None or self._link.is_closed:
                try:
                    opened = await self._connect(self.host, self.port)
                except ConnectionRefusedError as error:
                    raise PeerRefused(f"{self.host}:{self.port} cannot be reached: {error}") from error
                except OSError as error:
                    raise PeerUnavailable(f"{self.host}:{self.port} cannot be reached: {error}") from error
                self._link = _Link(opened, asyncio.get_running_loop(), f"{self.host}:{self.port}", self._lost)
            return self._link

    def close(self) -> None:
        """Hang up; those who wait get `PeerUnavailable`."""
        if self._link is not None:
            self._link.close(PeerUnavailable(f"the connection to {self.host}:{self.port} was closed"))


class _Link:
    """A socket, what is still to be written to it, and who waits for what comes from it."""

    def __init__(
        self, opened: socket.socket, loop: asyncio.AbstractEventLoop, name: str, lost: Callable[[], None]
    ) -> None:
        self._socket = opened
        self._loop = loop
        self._name = name
        self._lost = lost
        self._waiting: deque[asyncio.Future[memoryview]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._head = bytearray(_SIZE.size)
        self._frame: memoryview | None = None
        """The answer that is coming in; None while its size is."""
        self._filled = 0
        self.is_closed = False
        loop.add_reader(opened.fileno(), self._readable)

    def send(self, request: Message, version: int, correlation_id: int, client_id: str) -> "asyncio.Future[memoryview]":
        """Queue a request; the future yields the bytes of its answer."""
        was_idle = not self._unsent
        pieces = encode_request(request, version, correlation_id, client_id)
        self._unsent += [memoryview(cast("Buffer", piece)) for piece in pieces]
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._waiting.append(answer)
        if was_idle:
            self._writable()
        return answer

    def close(self, problem: PeerUnavailable) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._unsent.clear()
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(problem)
        self._waiting.clear()

    def _lose(self, why: str) -> None:
        """The other end is gone."""
        self.close(PeerUnavailable(f"{self._name}{why}"))
        self._lost()

    def _writable(self) -> None:
        while self._unsent:
            piece = self._unsent[0]
            try:
                sent = self._socket.send(piece)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._socket.fileno(), self._writable)
                return
            except OSError as error:
                self._lose(f": {error}")
                return
            if sent < len(piece):
                self._unsent[0] = piece[sent:]
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        target = memoryview(self._head) if self._frame is None else self._frame
        try:
            count = self._socket.recv_into(target[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f": {error}")
            return
        if count == 0:
            self._lose(" has hung up")
            return
        self._filled += count
        if self._filled < len(target):
            return
        self._filled = 0
        if self._frame is None:
            (size,) = _SIZE.unpack(self._head)
            if not 0 < size <= MAX_ANSWER_BYTES:
                self.close(PeerUnavailable(f"{self._name} sends an answer of {size} bytes"))
                return
            self._frame = memoryview(bytearray(size))
            return
        frame, self._frame = self._frame, None
        if not self._waiting:
            self.close(PeerUnavailable(f"{self._name} answers what nobody has asked"))
            return
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(frame)
