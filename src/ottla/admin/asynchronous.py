"""`AsyncAdmin`: the operations of `ottla.admin.operations`, run on an event loop."""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from ottla.admin.calls import CLIENT_ID, LARGEST_ANSWER_BYTES, TIMEOUT_S, AsyncDriver, Calls, Running
from ottla.admin.operations.core import Ask, Operation, Pause, Version
from ottla.client.addresses import Address, parse_addresses
from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable, ClientError, UnsupportedRequest
from ottla.client.sansio.handshake import handshake
from ottla.client.sansio.sasl import Mechanism
from ottla.client.sansio.session import Handshake
from ottla.client.security import security_of
from ottla.client.sockets import connect, connect_with_tls

T = TypeVar("T")


class AsyncAdmin(Calls, AsyncDriver):
    """`Admin` for programs with an event loop: the same methods as coroutines; an asynchronous context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """As `Admin`."""
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security_of(properties or {})
        self._mechanism: Mechanism | None = None
        self._connections: dict[Address, AsyncConnection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; what is under way fails."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def run(self, operation: Operation[T]) -> T:
        """Run one operation to its end; returns its result."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        running = Running(operation)
        while running.command is not None:
            try:
                outcome = await self._done(running.command, deadline - loop.time())
            except ClientError as error:
                outcome = error
            running.resume(outcome)
        return running.result

    async def _done(self, command: Ask | Version | Pause, left_s: float) -> Any:
        if isinstance(command, Pause):
            await asyncio.sleep(max(0.0, min(command.seconds, left_s)))
            return left_s > command.seconds
        candidates = dict.fromkeys((*self._connections, *self._bootstrap)) if command.to is None else (command.to,)
        problem: ClientError = BrokerUnavailable("no broker is named")
        for address in candidates:
            connection = self._to(address)
            try:
                if self._security.waits and self._security.mechanism is not None:
                    self._mechanism = await asyncio.to_thread(self._security.mechanism)
                session = await connection.open(timeout_s=self._timeout_s)
                if isinstance(command, Version):
                    return session.version(command.api_key)
                assert command.request.API_KEY is not None
                version = session.version(command.request.API_KEY, command.newest)
                return await connection.ask(command.request, version, timeout_s=self._timeout_s)
            except UnsupportedRequest:
                raise
            except ClientError as error:
                problem = error
        raise problem

    def _to(self, address: Address) -> AsyncConnection:
        known = self._connections.get(address)
        if known is None:
            tls = self._security.tls
            known = self._connections[address] = AsyncConnection(
                *address,
                self._client_id,
                connect=connect if tls is None else functools.partial(connect_with_tls, tls),
                handshake=self._handshake,
                largest_frame_bytes=LARGEST_ANSWER_BYTES,
            )
        return known

    def _handshake(self) -> Handshake:
        if self._mechanism is not None:
            ready, self._mechanism = self._mechanism, None
            return handshake(ready)
        return handshake(None if self._security.mechanism is None else self._security.mechanism())
