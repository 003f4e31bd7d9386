"""Logins of brokers that end, and are renewed on the connection that is in use (KIP-368)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.client.login import LoggedIn, log_in
from ottla.client.sansio.sasl import Mechanism, Plain
from ottla.client.sockets import connect
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse

LIFE_MS = 10_000
REQUEST = ControlledShutdownRequest(broker_id=1)


class Broker:
    """Answers the requests of one connection after the other, and keeps their kinds."""

    def __init__(self) -> None:
        self.seen: list[ApiKey] = []
        self.connections = 0
        self.accepts = True
        self.holds: asyncio.Event | None = None
        """The answer to other requests waits for it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while size := await reader.read(4):
            header, _ = decode_request_header(await reader.readexactly(int.from_bytes(size, "big")))
            self.seen.append(ApiKey(header.api_key))
            if header.api_key == ApiKey.CONTROLLED_SHUTDOWN and self.holds is not None:
                await self.holds.wait()
            answer = encode_response(self._answer(header.api_key), header.api_version, header.correlation_id)
            writer.write(b"".join(bytes(piece) for piece in answer))  # type: ignore[arg-type]
        writer.close()

    def _answer(self, api_key: int) -> Any:
        match api_key:
            case ApiKey.API_VERSIONS:
                return ApiVersionsResponse(
                    api_keys=[ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=2)]
                )
            case ApiKey.SASL_HANDSHAKE:
                return SaslHandshakeResponse(mechanisms=["PLAIN"])
            case ApiKey.SASL_AUTHENTICATE if self.accepts:
                return SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=LIFE_MS)
            case ApiKey.SASL_AUTHENTICATE:
                return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, auth_bytes=b"")
            case _:
                return ControlledShutdownResponse(remaining_partitions=[])


class Logins:
    """Passwords, while there are any."""

    def __init__(self) -> None:
        self.are_away = False

    async def __call__(self, host: str) -> Mechanism:
        if self.are_away:
            raise ConnectionError("no token comes")
        return Plain("broker", "secret")


class Story:
    """A connection that has logged in, and whose clock is set by hand."""

    def __init__(self, broker: Broker, client: AsyncConnection, logins: Logins) -> None:
        self.broker = broker
        self.client = client
        self.logins = logins
        self.stream: LoggedIn | None = None
        self.late_s = 0.0

    async def ask(self) -> Any:
        return await self.client.ask(REQUEST, 3, timeout_s=5)


def run(story: Callable[[Story], Awaitable[None]]) -> None:
    async def told() -> None:
        broker, logins = Broker(), Logins()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        made: list[Story] = []

        async def opened(host: str, port: int) -> LoggedIn:
            stream = await log_in(connect, logins, host, port, "me")
            now = asyncio.get_running_loop().time
            stream._now = lambda: now() + made[0].late_s
            return stream

        client = AsyncConnection(host, port, "me", connect=opened)
        made.append(Story(broker, client, logins))
        async with server:
            try:
                await story(made[0])
            finally:
                client.close()
                await asyncio.sleep(0)

    asyncio.run(told())


LOGIN = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]


def test_a_login_is_renewed_on_its_connection_in_time() -> None:
    async def story(told: Story) -> None:
        await told.ask()
        told.late_s = 8.0
        await told.ask()
        assert told.broker.seen == [ApiKey.API_VERSIONS, *LOGIN, *[ApiKey.CONTROLLED_SHUTDOWN] * 2]
        for late_s in (9.0, 18.0):
            told.late_s = late_s
            told.broker.seen.clear()
            await asyncio.gather(told.ask(), told.ask())
            assert told.broker.seen == [*LOGIN, *[ApiKey.CONTROLLED_SHUTDOWN] * 2]
        assert told.broker.connections == 1

    run(story)


def test_answers_that_are_awaited_come_before_a_renewal() -> None:
    async def story(told: Story) -> None:
        told.broker.holds = asyncio.Event()
        first = asyncio.create_task(told.ask())
        while ApiKey.CONTROLLED_SHUTDOWN not in told.broker.seen and not first.done():
            await asyncio.sleep(0.001)
        told.late_s = 9.0
        second = asyncio.create_task(told.ask())
        await asyncio.sleep(0.01)
        assert told.broker.seen[-1] is ApiKey.CONTROLLED_SHUTDOWN
        told.broker.holds.set()
        await asyncio.gather(first, second)
        assert told.broker.seen[-4:] == [ApiKey.CONTROLLED_SHUTDOWN, *LOGIN, ApiKey.CONTROLLED_SHUTDOWN]
        assert told.broker.connections == 1

    run(story)


def test_a_refused_renewal_ends_the_connection_and_nothing_is_sent_on_it() -> None:
    async def story(told: Story) -> None:
        await told.ask()
        told.late_s, told.broker.accepts = 9.0, False
        told.broker.seen.clear()
        with pytest.raises(BrokerUnavailable, match="does not authenticate this client"):
            await told.ask()
        assert told.broker.seen == LOGIN
        told.broker.accepts, told.late_s = True, 0.0
        await told.ask()
        assert told.broker.connections == 2

    run(story)


def test_without_anything_to_log_in_with_a_login_is_used_to_its_end() -> None:
    async def story(told: Story) -> None:
        await told.ask()
        told.late_s, told.logins.are_away = 9.0, True
        told.broker.seen.clear()
        await told.ask()
        assert told.broker.seen == [ApiKey.CONTROLLED_SHUTDOWN]
        told.logins.are_away = False
        await told.ask()
        assert told.broker.seen[1:] == [ApiKey.CONTROLLED_SHUTDOWN]
        told.late_s = 9.5
        await told.ask()
        assert told.broker.seen[2:] == [*LOGIN, ApiKey.CONTROLLED_SHUTDOWN]
        assert told.broker.connections == 1

    run(story)
