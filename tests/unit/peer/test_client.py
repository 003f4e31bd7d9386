"""Requests to other brokers: in order, over one connection, and what becomes of them when that breaks."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from ottla.errors import ErrorCode
from ottla.peer.client import PeerClient, PeerRefused, PeerUnavailable
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

VERSION = 3
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


def request(number: int) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=number)


def frame(correlation_id: int, error: int = 0) -> bytes:
    response = ControlledShutdownResponse(error_code=error, remaining_partitions=[])
    return b"".join(bytes(piece) for piece in encode_response(response, VERSION, correlation_id))


async def answer_at_once(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(frame(correlation_id, correlation_id))


def run(answer: Answer, story: Callable[[PeerClient, list[int]], Awaitable[None]]) -> None:
    """The story, with a client of a broker that answers like this; connections are counted."""

    async def told() -> None:
        connections: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(1)
            try:
                while size := await reader.read(4):
                    body = await reader.readexactly(int.from_bytes(size, "big"))
                    header, _ = decode_request_header(body)
                    assert header.client_id == "me"
                    await answer(header.correlation_id, writer)
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            client = PeerClient(host, port, "me")
            try:
                await story(client, connections)
            finally:
                client.close()
                await asyncio.sleep(0)

    asyncio.run(told())


def test_requests_share_a_connection_and_each_gets_its_answer() -> None:
    async def story(client: PeerClient, connections: list[int]) -> None:
        answers = await asyncio.gather(*(client.ask(request(n), VERSION, timeout_s=5) for n in range(5)))
        assert [answer.error_code for answer in answers] == [1, 2, 3, 4, 5]
        assert len(connections) == 1

    run(answer_at_once, story)


def test_an_answer_may_come_in_pieces() -> None:
    async def in_pieces(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        for byte in frame(correlation_id, 7):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async def story(client: PeerClient, connections: list[int]) -> None:
        for _ in range(2):
            assert (await client.ask(request(1), VERSION, timeout_s=5)).error_code == 7

    run(in_pieces, story)


def test_a_broker_that_hangs_up_is_called_again_by_the_next_request() -> None:
    calls: list[int] = []

    async def hang_up_first(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        calls.append(correlation_id)
        if len(calls) == 1:
            writer.transport.abort()
        else:
            writer.write(frame(correlation_id))

    async def story(client: PeerClient, connections: list[int]) -> None:
        with pytest.raises(PeerUnavailable):
            await client.ask(request(1), VERSION, timeout_s=5)
        assert (await client.ask(request(1), VERSION, timeout_s=5)).error_code == 0
        assert len(connections) == 2

    run(hang_up_first, story)


def test_an_answer_that_does_not_come_in_time_takes_the_connection_along() -> None:
    async def silence(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id > 2:
            writer.write(frame(correlation_id))

    async def story(client: PeerClient, connections: list[int]) -> None:
        first = asyncio.ensure_future(client.ask(request(1), VERSION, timeout_s=30))
        await asyncio.sleep(0.05)
        with pytest.raises(PeerUnavailable, match=r"did not answer within 0\.1 s"):
            await client.ask(request(2), VERSION, timeout_s=0.1)
        with pytest.raises(PeerUnavailable, match="given up"):
            await first
        assert (await client.ask(request(3), VERSION, timeout_s=5)).error_code == 0
        assert len(connections) == 2

    run(silence, story)


def test_what_does_not_parse_is_no_answer() -> None:
    async def nonsense(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write((4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big"))

    async def story(client: PeerClient, connections: list[int]) -> None:
        with pytest.raises(PeerUnavailable, match="does not parse"):
            await client.ask(request(1), VERSION, timeout_s=5)

    run(nonsense, story)


def test_a_size_that_cannot_be_ends_the_connection() -> None:
    async def too_large(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x7f\xff\xff\xff")

    async def story(client: PeerClient, connections: list[int]) -> None:
        with pytest.raises(PeerUnavailable, match="an answer of 2147483647 bytes"):
            await client.ask(request(1), VERSION, timeout_s=5)

    run(too_large, story)


def test_a_broker_that_is_not_there() -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        client = PeerClient("127.0.0.1", port, "me")
        with pytest.raises(PeerRefused, match="cannot be reached"):
            await client.open(timeout_s=5)
        with pytest.raises(PeerUnavailable, match="cannot be reached") as problem:
            await client.ask(request(1), VERSION, timeout_s=5)
        assert problem.value.code is ErrorCode.NETWORK_EXCEPTION
        client.close()

    asyncio.run(story())


def test_a_connection_that_breaks_is_noticed_without_a_request() -> None:
    async def story() -> None:
        streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams.append((reader, writer))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        broken = asyncio.Event()
        client = PeerClient(host, port, "me", lost=broken.set)
        async with server, asyncio.timeout(20):
            await client.open(timeout_s=5)
            while not streams:
                await asyncio.sleep(0)
            assert not broken.is_set()
            streams[0][1].transport.abort()
            await broken.wait()
            broken.clear()
            await client.open(timeout_s=5)
            client.close()  # by this end
            while len(streams) < 2:
                await asyncio.sleep(0)
            assert await streams[1][0].read() == b""
            assert not broken.is_set()
            streams[1][1].close()

    asyncio.run(story())


def test_a_connection_that_takes_too_long_to_open() -> None:
    async def story() -> None:
        async def never(host: str, port: int) -> socket.socket:
            opened: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
            return await opened

        with pytest.raises(PeerUnavailable, match="cannot be reached within 0\\.01 s"):
            await PeerClient("host", 1, "me", connect=never).open(timeout_s=0.01)

    asyncio.run(story())
