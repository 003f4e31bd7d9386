"""The connection over a real socket pair: framing however the bytes are cut, order of replies, back-pressure."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.log.file_region import FileRegion
from ottla.log.fs import RealFileSystem
from ottla.protocol.api import ApiKey
from ottla.protocol.limits import MAX_BYTES
from ottla.server.connection import MAX_IN_FLIGHT, Connection, Endpoints
from ottla.server.framer import FIRST_FRAME_BUFFER_BYTES, BadFrame
from ottla.server.memory import MemoryBudget
from ottla.server.replies import ReplySlot
from ottla.server.transport import PlainTransport

MAX_FRAME_BYTES = 8 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Peer:
    """The client's end, and the frames that the server's end was handed."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.slots: list[ReplySlot] = []
        self.on_frame: Callable[[bytes, ReplySlot], None] = lambda body, slot: slot.fill([framed(body)])
        self.sock, self.server_sock = socket.socketpair()
        self.closed = False

    def handle(self, frame: memoryview, connection: Connection, slot: ReplySlot) -> None:
        body = bytes(frame)
        self.frames.append(body)
        self.slots.append(slot)
        self.on_frame(body, slot)


@contextmanager
def connected(memory_bytes: int = 64 << 20) -> Iterator[tuple[Peer, Connection, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    peer = Peer()
    peer.sock.close()
    peer.server_sock.close()
    peer.sock = socket.create_connection(listening.getsockname())
    peer.server_sock, _ = listening.accept()
    peer.sock.setblocking(False)
    peer.server_sock.setblocking(False)

    def note_closed(_: Connection) -> None:
        peer.closed = True

    connection = Connection(
        PlainTransport(peer.server_sock),
        Endpoints("PLAINTEXT", 1, *peer.server_sock.getpeername(), *peer.server_sock.getsockname()),
        loop=loop,
        scratch=memoryview(bytearray(64 * 1024)),
        handle_frame=peer.handle,
        max_frame_bytes=MAX_FRAME_BYTES,
        memory=MemoryBudget(loop, limit_bytes=memory_bytes, largest_request_bytes=MAX_FRAME_BYTES),
        closed=note_closed,
    )
    try:
        yield peer, connection, loop
    finally:
        connection.close()
        peer.sock.close()
        listening.close()
        loop.close()


async def read_frames(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> list[bytes]:
    data = b""
    frames: list[bytes] = []
    while len(frames) < count:
        chunk = await loop.sock_recv(sock, 1 << 20)
        assert chunk, f"closed after {len(frames)} of {count} replies"
        data += chunk
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
            size = int.from_bytes(data[:4], "big")
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
    return frames


async def read_exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, size: int) -> None:
    while size:
        chunk = await loop.sock_recv(sock, size)
        assert chunk, f"closed with {size} bytes to come"
        size -= len(chunk)


@pytest.mark.parametrize("memory_bytes", [64 << 20, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_frames_arrive_whole_however_they_are_cut(seed: int, memory_bytes: int) -> None:
    """However little memory there is, too: a single client has the turn again and again."""
    rng = random.Random(seed)
    sizes = [
        rng.choice([1, 2, 3, 100, 4096, 70_000, 300_000, FIRST_FRAME_BUFFER_BYTES + 5, 3 << 20]) for _ in range(12)
    ]
    bodies = [rng.randbytes(size) for size in sizes]
    stream = b"".join(framed(body) for body in bodies)

    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        async def send() -> None:
            position = 0
            while position < len(stream):
                cut = position + rng.choice([1, 2, 3, 5, 1000, 65_536, 65_540, 1 << 20])
                await loop.sock_sendall(peer.sock, stream[position:cut])
                position = cut
                await asyncio.sleep(0)

        sending = loop.create_task(send())
        replies = await read_frames(loop, peer.sock, len(bodies))
        await sending
        return replies

    with connected(memory_bytes) as (peer, _, loop):
        replies = loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 30))
        assert peer.frames == bodies
        assert replies == bodies


def test_a_request_kept_until_it_is_answered_counts_until_then() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop, memory: MemoryBudget) -> list[int]:
        def keep(body: bytes, slot: ReplySlot) -> None:
            slot.request_bytes = len(body)

        peer.on_frame = keep
        await loop.sock_sendall(peer.sock, framed(bytes(300_000)))
        while not peer.frames:
            await asyncio.sleep(0.001)
        held = [memory.held_bytes]
        peer.slots[0].fill([framed(bytes(1000))])
        await read_frames(loop, peer.sock, 1)
        return [*held, memory.held_bytes]

    with connected() as (peer, connection, loop):
        held = loop.run_until_complete(asyncio.wait_for(scenario(peer, loop, connection._memory), 30))
        assert held == [300_000, 0]


def test_what_is_pipelined_waits_while_replies_are_not_taken() -> None:
    """Each request is 100 bytes and its reply 100 KB: all at once would be 200 MB."""
    requests = 2000
    reply = framed(bytes(100_000))
    most_under_way = 0

    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
        def answer(body: bytes, slot: ReplySlot) -> None:
            nonlocal most_under_way
            most_under_way = max(most_under_way, len(peer.frames) - taken)
            slot.fill([reply])

        taken = 0
        peer.on_frame = answer
        sending = loop.create_task(loop.sock_sendall(peer.sock, framed(bytes(100)) * requests))
        await asyncio.sleep(0.2)
        while taken < requests:
            await read_exactly(loop, peer.sock, len(reply))
            taken += 1
        await sending

    with connected() as (peer, _, loop):
        loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 60))
        assert len(peer.frames) == requests
    assert most_under_way < 200


def test_replies_behind_one_that_is_not_ready_count_too() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> int:
        def answer(body: bytes, slot: ReplySlot) -> None:
            if len(peer.frames) > 1:
                slot.fill([framed(bytes(300_000))])

        peer.on_frame = answer
        await loop.sock_sendall(peer.sock, framed(b"request") * 100)
        await asyncio.sleep(0.2)
        held_at = len(peer.frames)
        peer.slots[0].fill([framed(b"at last")])
        assert len(await read_frames(loop, peer.sock, 100)) == 100
        return held_at

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 30)) < 10
        assert len(peer.frames) == 100


def test_a_parked_request_is_given_up_with_its_connection() -> None:
    given_up: list[int] = []

    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> None:
        def park(body: bytes, slot: ReplySlot) -> None:
            number = len(peer.frames)
            slot.on_abandoned = lambda: given_up.append(number)
            if number == 1:
                slot.fill([framed(b"done")])

        peer.on_frame = park
        await loop.sock_sendall(peer.sock, framed(b"request") * 3)
        await asyncio.sleep(0.05)
        peer.sock.close()
        await asyncio.sleep(0.05)

    with connected() as (peer, _, loop):
        loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 30))
        assert peer.closed
    assert given_up == [2, 3]


def test_a_client_that_takes_no_replies_counts_as_idle() -> None:
    async def scenario(peer: Peer, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        peer.on_frame = lambda body, slot: None
        await loop.sock_sendall(peer.sock, framed(b"request"))
        await asyncio.sleep(0.05)
        assert not connection.idle  # the reply is ours to give
        peer.slots[0].fill([framed(bytes(32 << 20))])
        await asyncio.sleep(0.05)
        assert connection.idle
        before = connection.last_active
        await asyncio.sleep(0.05)
        await read_frames(loop, peer.sock, 1)
        assert connection.last_active > before  # as long as it takes some, it is not

    with connected() as (peer, connection, loop):
        loop.run_until_complete(asyncio.wait_for(scenario(peer, connection, loop), 30))


def test_replies_leave_in_the_order_of_the_requests() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        peer.on_frame = lambda body, slot: None
        await loop.sock_sendall(peer.sock, b"".join(framed(bytes([n])) for n in range(5)))
        while len(peer.slots) < 5:
            await asyncio.sleep(0)
        for n in (3, 1, 4, 0, 2):
            peer.slots[n].fill([framed(peer.frames[n])])
        return await read_frames(loop, peer.sock, 5)

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == [bytes([n]) for n in range(5)]


def test_a_request_without_an_answer_does_not_hold_back_the_next() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        peer.on_frame = lambda body, slot: slot.fill(() if body == b"mute" else [framed(body)])
        await loop.sock_sendall(peer.sock, framed(b"mute") + framed(b"loud"))
        return await read_frames(loop, peer.sock, 1)

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == [b"loud"]


@pytest.mark.parametrize("prefix", [0, -1, MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_lying_length_closes_the_connection(prefix: int) -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> bytes:
        await loop.sock_sendall(peer.sock, struct.pack(">i", prefix) + b"rest")
        try:
            return await loop.sock_recv(peer.sock, 10)
        except ConnectionResetError:
            return b""

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == b""
        assert peer.closed
        assert peer.frames == []


@pytest.mark.parametrize("first_bytes", [1, 1000])
def test_a_request_too_large_for_its_api_is_refused_before_it_is_read(first_bytes: int) -> None:
    async def scenario(peer: Peer, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        size = MAX_BYTES + 1
        request = struct.pack(">ih", size, ApiKey.METADATA) + bytes(size)
        await loop.sock_sendall(peer.sock, request[: 4 + first_bytes])
        while not connection.waits_for_client() and not connection.closed:
            await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(peer.sock, request[4 + first_bytes : 4 + size])
        while not connection.closed:
            await asyncio.sleep(0)
        assert peer.frames == []

    with connected() as (peer, connection, loop):
        loop.run_until_complete(asyncio.wait_for(scenario(peer, connection, loop), 20))


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    async def scenario(peer: Peer, connection: Connection, loop: asyncio.AbstractEventLoop) -> tuple[int, int]:
        reply = framed(b"r" * (1 << 20))
        peer.on_frame = lambda body, slot: slot.fill([reply])

        async def send() -> None:
            for _ in range(200):
                await loop.sock_sendall(peer.sock, framed(b"x" * 10_000))

        sending = loop.create_task(send())
        await asyncio.sleep(0.3)
        handled_while_stuck = len(peer.frames)
        await read_frames(loop, peer.sock, 200)
        await sending
        return handled_while_stuck, len(peer.frames)

    with connected() as (peer, connection, loop):
        stuck, total = loop.run_until_complete(asyncio.wait_for(scenario(peer, connection, loop), 30))
        assert stuck < 50
        assert total == 200


def test_too_many_requests_in_flight_pause_reading_until_some_are_answered() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> int:
        peer.on_frame = lambda body, slot: None
        count = 3 * MAX_IN_FLIGHT

        async def send() -> None:
            for n in range(count):
                await loop.sock_sendall(peer.sock, framed(n.to_bytes(4, "big") + b"x" * 2000))

        sending = loop.create_task(send())
        await asyncio.sleep(0.3)
        stuck = len(peer.slots)
        answered = 0
        while answered < count:
            while answered < len(peer.slots):
                peer.slots[answered].fill([framed(b"ok")])
                answered += 1
            await asyncio.sleep(0)
        await sending
        return stuck

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 30)) < 2 * MAX_IN_FLIGHT


def test_a_bad_frame_closes_only_this_connection_and_drops_what_was_parked() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> bytes:
        def on_frame(body: bytes, slot: ReplySlot) -> None:
            if body == b"bad":
                raise BadFrame("no client says this")

        peer.on_frame = on_frame
        await loop.sock_sendall(peer.sock, framed(b"parked") + framed(b"bad") + framed(b"after"))
        return await loop.sock_recv(peer.sock, 10)

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == b""
        assert peer.frames == [b"parked", b"bad"]
        peer.slots[0].fill([framed(b"late")])  # a parked answer that comes after the end is dropped


def test_empty_buffers_in_a_reply_are_no_obstacle() -> None:
    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        peer.on_frame = lambda body, slot: slot.fill([b"", framed(body), b"", b""])
        await loop.sock_sendall(peer.sock, framed(b"first") + framed(b"second"))
        return await read_frames(loop, peer.sock, 2)

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == [b"first", b"second"]


def test_file_regions_are_sent_in_their_place_however_little_the_socket_takes(tmp_path: Path) -> None:
    rng = random.Random(1)
    content = rng.randbytes(5 << 20)
    path = tmp_path / "segment"
    path.write_bytes(content)
    file = RealFileSystem().open(str(path))
    descriptor = file.descriptor()
    assert descriptor is not None

    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        def on_frame(body: bytes, slot: ReplySlot) -> None:
            first = FileRegion(file, descriptor, 10, 1 << 20)
            second = FileRegion(file, descriptor, 1 << 20, 3 << 20)
            size = len(body) + len(first) + len(second) + 3
            slot.fill([struct.pack(">i", size), body, first, b"mid", second])

        peer.on_frame = on_frame
        await loop.sock_sendall(peer.sock, framed(b"one") + framed(b"two"))
        await asyncio.sleep(0.1)  # both replies get stuck in the middle
        return await read_frames(loop, peer.sock, 2)

    with connected() as (peer, _, loop):
        replies = loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 30))
    expected = content[10 : 10 + (1 << 20)] + b"mid" + content[1 << 20 : 4 << 20]
    assert replies == [b"one" + expected, b"two" + expected]


def test_a_file_that_became_shorter_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 100_000)
    file = RealFileSystem().open(str(path))
    descriptor = file.descriptor()
    assert descriptor is not None

    async def scenario(peer: Peer, loop: asyncio.AbstractEventLoop) -> bytes:
        peer.on_frame = lambda body, slot: slot.fill([FileRegion(file, descriptor, 0, 200_000)])
        await loop.sock_sendall(peer.sock, framed(b"give"))
        received = b""
        while chunk := await loop.sock_recv(peer.sock, 1 << 20):
            received += chunk
        return received

    with connected() as (peer, _, loop):
        assert loop.run_until_complete(asyncio.wait_for(scenario(peer, loop), 10)) == b"x" * 100_000
        assert peer.closed
