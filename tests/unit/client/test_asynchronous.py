"""Requests to other brokers: in order, over one connection, and what becomes of them when that breaks."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from tests.support.certificates import write_certificate

from ottla.client.asynchronous import READS_PER_TURN, AsyncConnection
from ottla.client.errors import BrokerRefused, BrokerUnavailable, NotABroker
from ottla.client.sansio.handshake import API_VERSIONS_VERSION, handshake
from ottla.client.sockets import connect_with_tls, resolve
from ottla.errors import ErrorCode
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

VERSION = 3
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


def request(number: int) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=number)


def frame(correlation_id: int, error: int = 0) -> bytes:
    response = ControlledShutdownResponse(error_code=error, remaining_partitions=[])
    return b"".join(cast(bytes, piece) for piece in encode_response(response, VERSION, correlation_id))


async def answer_at_once(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(frame(correlation_id, correlation_id))


def run(answer: Answer, story: Callable[[AsyncConnection, list[int]], Awaitable[None]]) -> None:
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
            client = AsyncConnection(host, port, "me")
            try:
                await story(client, connections)
            finally:
                client.close()
                await asyncio.sleep(0)

    asyncio.run(told())


def test_requests_share_a_connection_and_each_gets_its_answer() -> None:
    async def story(client: AsyncConnection, connections: list[int]) -> None:
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

    async def story(client: AsyncConnection, connections: list[int]) -> None:
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

    async def story(client: AsyncConnection, connections: list[int]) -> None:
        with pytest.raises(BrokerUnavailable):
            await client.ask(request(1), VERSION, timeout_s=5)
        assert (await client.ask(request(1), VERSION, timeout_s=5)).error_code == 0
        assert len(connections) == 2

    run(hang_up_first, story)


def test_an_answer_that_does_not_come_in_time_takes_the_connection_along() -> None:
    requests: list[int] = []

    async def silence(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        requests.append(correlation_id)
        if len(requests) > 2:
            writer.write(frame(correlation_id))

    async def story(client: AsyncConnection, connections: list[int]) -> None:
        first = asyncio.ensure_future(client.ask(request(1), VERSION, timeout_s=30))
        await asyncio.sleep(0.05)
        with pytest.raises(BrokerUnavailable, match=r"did not answer within 0\.1 s"):
            await client.ask(request(2), VERSION, timeout_s=0.1)
        with pytest.raises(BrokerUnavailable, match="given up"):
            await first
        assert (await client.ask(request(3), VERSION, timeout_s=5)).error_code == 0
        assert len(connections) == 2

    run(silence, story)


def test_what_does_not_parse_is_no_answer() -> None:
    async def nonsense(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write((4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big"))

    async def story(client: AsyncConnection, connections: list[int]) -> None:
        with pytest.raises(BrokerUnavailable, match="does not answer as a Kafka broker: its answer does not parse"):
            await client.ask(request(1), VERSION, timeout_s=5)

    run(nonsense, story)


def test_a_size_that_cannot_be_ends_the_connection() -> None:
    async def too_large(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x7f\xff\xff\xff")

    async def story(client: AsyncConnection, connections: list[int]) -> None:
        with pytest.raises(BrokerUnavailable, match="announces an answer of 2147483647 bytes"):
            await client.ask(request(1), VERSION, timeout_s=5)

    run(too_large, story)


def test_a_broker_that_is_not_there() -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        client = AsyncConnection("127.0.0.1", port, "me")
        with pytest.raises(BrokerRefused, match="cannot be reached"):
            await client.open(timeout_s=5)
        with pytest.raises(BrokerUnavailable, match="cannot be reached") as problem:
            await client.ask(request(1), VERSION, timeout_s=5)
        assert problem.value.code is ErrorCode.NETWORK_EXCEPTION
        client.close()

    asyncio.run(story())


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "ä" * 64, "a\0b", ""])
def test_what_cannot_be_the_name_of_a_host_is_a_broker_that_is_not_there(host: str) -> None:
    """Brokers and controllers register any text, and operators mistype; the one who connects must not fail by it."""

    async def story() -> None:
        client = AsyncConnection(host, 1, "me")
        with pytest.raises(BrokerUnavailable, match="cannot be reached"):
            await client.ask(request(1), VERSION, timeout_s=5)
        assert host == "" or not await resolve(host)

    asyncio.run(story())


def test_a_connection_that_breaks_is_noticed_without_a_request() -> None:
    async def story() -> None:
        streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams.append((reader, writer))

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        broken = asyncio.Event()
        client = AsyncConnection(host, port, "me", lost=broken.set)
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

        with pytest.raises(BrokerUnavailable, match="cannot be reached within 0\\.01 s"):
            await AsyncConnection("host", 1, "me", connect=never).open(timeout_s=0.01)

    asyncio.run(story())


@pytest.mark.parametrize("trusts", [True, False])
def test_tls(tmp_path: Path, trusts: bool) -> None:
    """Large requests and answers in many TLS records, with a certificate that is trusted, and one that is not."""
    key, certificate = write_certificate(tmp_path)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate, key)
    context = ssl.create_default_context(cafile=str(certificate) if trusts else None)
    large = [RemainingPartition(topic_name="t" * 1000, partition_index=number) for number in range(2000)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                body = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, _ = decode_request_header(body)
                response = ControlledShutdownResponse(error_code=0, remaining_partitions=large)
                pieces = encode_response(response, VERSION, header.correlation_id)
                writer.write(b"".join(cast(bytes, piece) for piece in pieces))
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
        host, port = server.sockets[0].getsockname()
        client = AsyncConnection(host, port, "me" * 10_000, connect=partial(connect_with_tls, context))
        async with server:
            if trusts:
                answers = await asyncio.gather(*(client.ask(request(1), VERSION, timeout_s=20) for _ in range(20)))
                assert {len(answer.remaining_partitions) for answer in answers} == {len(large)}
            else:
                with pytest.raises(
                    BrokerUnavailable, match=r"TLS with .* failed: its certificate is not trusted: self-signed"
                ):
                    await client.ask(request(1), VERSION, timeout_s=20)
            client.close()
            await asyncio.sleep(0)

    asyncio.run(story())


class FakeTlsSocket:
    """A socket that is readable, and takes everything that is sent; it has more in each turn of the loop."""

    def __init__(self, unread: bytes) -> None:
        self.unread = unread
        self._descriptor, self._other_end = socket.socketpair()
        self._other_end.send(b"readable")

    def recv_into(self, buffer: memoryview) -> int:
        """Read what is there; 0 behind it: the other end has hung up."""
        read, self.unread = self.unread[: len(buffer)], self.unread[len(buffer) :]
        buffer[: len(read)] = read
        return len(read)

    def pending(self) -> int:
        return 1

    def send(self, data: memoryview) -> int:
        return len(data)

    def fileno(self) -> int:
        return self._descriptor.fileno()

    def close(self) -> None:
        self._descriptor.close()
        self._other_end.close()


class FastSender(FakeTlsSocket):
    """Its other end sends zeros faster than they are read, behind the size of an answer."""

    def recv_into(self, buffer: memoryview) -> int:
        return super().recv_into(buffer) or min(len(buffer), 1 << 14)


def test_a_fast_sender_leaves_the_loop_to_others() -> None:
    """It gets its turn for some records, not until it has sent all."""
    answer_bytes = 64 << 20
    turns = 0

    async def connect(host: str, port: int) -> socket.socket:
        return FastSender(answer_bytes.to_bytes(4, "big"))  # type: ignore[return-value] # it has what is used

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def story() -> None:
        counting = asyncio.create_task(count())
        client = AsyncConnection("b", 9, "me", connect=connect)
        with pytest.raises(NotABroker):
            await client.ask(request(1), VERSION, timeout_s=20)
        counting.cancel()

    asyncio.run(story())
    assert turns > answer_bytes / (1 << 14) / READS_PER_TURN / 3


def test_a_connection_that_is_lost_in_the_turn_in_which_it_becomes_ready() -> None:
    """The request fails as on any lost connection: a quorum node whose request has no outcome never fetches again."""

    last_words = encode_response(ApiVersionsResponse(error_code=0, api_keys=[]), API_VERSIONS_VERSION, 1)

    async def connect(host: str, port: int) -> socket.socket:
        return FakeTlsSocket(b"".join(cast(bytes, piece) for piece in last_words))  # type: ignore[return-value] # it has what is used

    async def story() -> None:
        client = AsyncConnection("b", 9, "me", connect=connect, handshake=handshake)
        for _ in range(2):
            with pytest.raises(BrokerUnavailable, match="b:9 has hung up"):
                await client.ask(request(1), VERSION, timeout_s=20)
            with pytest.raises(BrokerUnavailable, match="b:9 has hung up"):
                await client.open(timeout_s=20)

    asyncio.run(story())
