"""The connections of a broker with the active controller of a quorum, which the quorum's log names as its leader.

A request is sent again, to the next leader, until one answers that it is the controller, or the time is over.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.client.sansio.handshake import handshake
from ottla.client.sockets import Connect
from ottla.errors import ErrorCode
from ottla.protocol.schema import Message

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 0.05
MOST_CONNECTIONS: Final = 8
"""As many requests of one kind can be on their way to the controller; further ones wait."""

Address = tuple[str, int]


class ControllerChannel:
    """One connection to the active controller, opened when it is needed. On the loop's thread.

    Requests of one connection are answered in order, so that heartbeats have a channel of their own.
    """

    def __init__(
        self, client_id: str, leader: Callable[[], Address | None], connect: Connect, loop: asyncio.AbstractEventLoop
    ) -> None:
        """`leader` is where the active controller is now, None while there is none."""
        self._client_id = client_id
        self._leader = leader
        self._connect = connect
        self._loop = loop
        self._connection: AsyncConnection | None = None

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()

    async def ask(self, request: Message, version: int | None = None, *, timeout_s: float) -> Any:
        """The answer of the active controller, in the newest version that it knows or the one given.

        Raises `BrokerUnavailable` if none has answered after this time; the request may have been carried out, and a
        controller may have carried it out before another one answers.
        """
        deadline = self._loop.time() + timeout_s
        problem = "the quorum has no leader that this broker knows"
        while (left_s := deadline - self._loop.time()) > 0:
            address = self._leader()
            if address is not None:
                try:
                    answer = await self._ask_while_leader(address, request, version, left_s)
                except BrokerUnavailable as error:
                    problem = str(error)
                else:
                    if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NOT_CONTROLLER:
                        return answer
                    problem = f"{address[0]}:{address[1]} is not the active controller"
            await asyncio.sleep(LOOK_AGAIN_S)
        raise BrokerUnavailable(f"no active controller has answered within {timeout_s:g} s: {problem}")

    async def _ask_while_leader(self, address: Address, request: Message, version: int | None, timeout_s: float) -> Any:
        """The answer, unless the leader changes before it comes."""
        connection = self._to(address)
        asking = self._loop.create_task(connection.ask(request, version, timeout_s=timeout_s))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=LOOK_AGAIN_S)
                if not asking.done() and self._leader() not in (address, None):
                    raise BrokerUnavailable(f"{address[0]}:{address[1]} is no longer the active controller")
            return await asking
        finally:
            asking.cancel()

    def _to(self, address: Address) -> AsyncConnection:
        known = self._connection
        if known is None or (known.host, known.port) != address:
            if known is not None:
                known.close()
            known = self._connection = AsyncConnection(
                *address, self._client_id, connect=self._connect, handshake=handshake
            )
        return known


class ControllerConnections:
    """Connections to the active controller for requests that come at the same time. On the loop's thread.

    Each connection has one request at a time: a slow one delays no other, and one that is given up, which closes its
    connection, ends no other.
    """

    def __init__(self, open_channel: Callable[[], ControllerChannel]) -> None:
        self._open_channel = open_channel
        self._channels: list[ControllerChannel] = []
        self._idle: list[ControllerChannel] = []
        self._free = asyncio.Semaphore(MOST_CONNECTIONS)

    def close(self) -> None:
        """Hang up."""
        for channel in self._channels:
            channel.close()

    async def ask(self, request: Message, version: int | None = None, *, timeout_s: float) -> Any:
        """The answer of the active controller. Raises as `ControllerChannel.ask`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise BrokerUnavailable(
                f"{MOST_CONNECTIONS} earlier requests to the active controller have no answer after {timeout_s:g} s"
            ) from None
        if not self._idle:
            self._idle.append(self._open_channel())
            self._channels.append(self._idle[-1])
        channel = self._idle.pop()
        try:
            return await channel.ask(request, version, timeout_s=deadline - loop.time())
        finally:
            self._idle.append(channel)
            self._free.release()
