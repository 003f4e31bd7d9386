"""SASL on a stream before it is used: how a broker logs in to another one."""

import asyncio

from ottla.client.addresses import Address
from ottla.client.errors import ClientError
from ottla.client.sansio.handshake import handshake
from ottla.client.sansio.sasl import Mechanism
from ottla.client.sansio.session import Session, State
from ottla.client.sockets import Connect, Stream


async def log_in(connect: Connect, mechanism: Mechanism, host: str, port: int, client_id: str) -> Stream:
    """Connect and authenticate. Raises OSError, also for a login that is refused."""
    stream = await connect(host, port)
    name = str(Address(host, port))
    try:
        session = Session(name, client_id, handshake=handshake(mechanism))
        while session.state is State.NEGOTIATING:
            for piece in session.outgoing():
                await _send(stream, memoryview(piece))
            session.received(await _receive_into(stream, session.buffer()))
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
