"""SASL on a stream before it is used: how a broker logs in to another one, and renews its login in time (KIP-368)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.client.sansio.handshake import handshake, renewal
from ottla.client.sansio.sasl import Mechanism
from ottla.client.sansio.session import Handshake, Served, Session, State
from ottla.client.sockets import Connect, Stream

NewMechanism = Callable[[str], Awaitable[Mechanism]]
"""A new authentication at a host. Raises OSError if there is nothing to log in with."""
RENEWED_AFTER: Final = 0.85
"""The share of a login's life after which it is renewed, as in Kafka."""
RETRY_SHARE: Final = 0.03


class LoggedIn:
    """A stream whose login may end: once `renewal_is_due`, the next request has to wait for `renewal`."""

    def __init__(self, stream: Stream, new_mechanism: NewMechanism, host: str, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._stream = stream
        self._new_mechanism = new_mechanism
        self._host = host
        self._now = now
        self._life_s = 0.0
        self._renew_at: float | None = None
        self._served: Served = {}
        self.recv_into = stream.recv_into
        self.send = stream.send
        self.fileno = stream.fileno
        self.close = stream.close
        pending = getattr(stream, "pending", None)
        if pending is not None:
            self.pending = pending

    def succeeded(self, lifetime_ms: int) -> None:
        """A login has been accepted, for so many ms; 0 for ever."""
        self._life_s = lifetime_ms / 1000
        self._renew_at = self._now() + self._life_s * RENEWED_AFTER if lifetime_ms > 0 else None

    @property
    def renewal_is_due(self) -> bool:
        """Whether most of the life of the login is over."""
        return self._renew_at is not None and self._now() >= self._renew_at

    async def renewal(self) -> Handshake:
        """The steps of another login. Raises OSError if there is nothing to log in with; to be tried again soon."""
        self._renew_at = self._now() + self._life_s * RETRY_SHARE
        return renewal(await self._new_mechanism(self._host), self._served, self.succeeded)

    async def log_in(self, name: str, client_id: str) -> None:
        """The first login, before the stream is used. Raises OSError, `ClientError`."""
        mechanism = await self._new_mechanism(self._host)
        session = Session(name, client_id, handshake=handshake(mechanism, self.succeeded))
        while session.state is State.NEGOTIATING:
            for piece in session.outgoing():
                await _send(self._stream, memoryview(piece))
            session.received(await _receive_into(self._stream, session.buffer()))
        self._served = session.served


async def log_in(connect: Connect, new_mechanism: NewMechanism, host: str, port: int, client_id: str) -> LoggedIn:
    """Connect and authenticate. Raises OSError, also for a login that is refused."""
    stream = LoggedIn(await connect(host, port), new_mechanism, host, asyncio.get_running_loop().time)
    try:
        await stream.log_in(str(Address(host, port)), client_id)
    except ClientError as error:
        stream.close()
        raise ConnectionError(str(error)) from error
    except BaseException:
        stream.close()
        raise
    return stream


async def _send(stream: Stream, data: memoryview) -> None:
    while data:
        try:
            data = data[stream.send(data) :]
        except (BlockingIOError, InterruptedError):
            await _until_ready(stream, writable=True)


async def _receive_into(stream: Stream, buffer: memoryview) -> int:
    while True:
        try:
            count = stream.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            await _until_ready(stream, writable=False)
            continue
        if not count:
            raise ConnectionResetError("the connection was closed in the midst of the login")
        return count


def _note(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _until_ready(stream: Stream, *, writable: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    watch, forget = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
    watch(stream.fileno(), _note, ready)
    try:
        await ready
    finally:
        forget(stream.fileno())
