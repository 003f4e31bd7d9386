"""`AsyncAdmin`: the operations of `ottla.admin.operations`, run on an event loop."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.admin.blocking import CLIENT_ID, LARGEST_ANSWER_BYTES, TIMEOUT_S
from ottla.admin.operations import (
    cluster,
    features,
    groups,
    reassignments,
    share_groups,
    streams_groups,
    telemetry,
    transactions,
)
from ottla.admin.operations.core import Ask, Operation, Pause, Version
from ottla.client.addresses import Address, parse_addresses
from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable, ClientError, UnsupportedRequest
from ottla.client.sansio.handshake import handshake
from ottla.client.sansio.session import Handshake
from ottla.client.security import security_of
from ottla.client.sockets import connect, connect_with_tls

P = ParamSpec("P")
T = TypeVar("T")


def _asynchronous(operation: Callable[P, Operation[T]]) -> Callable[Concatenate["AsyncAdmin", P], Awaitable[T]]:
    """A method of `AsyncAdmin` from an operation."""

    @functools.wraps(operation)
    async def method(self: "AsyncAdmin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(operation(*args, **kwargs))

    return method


class AsyncAdmin:
    """`Admin` for programs with an event loop: the same methods as coroutines; an asynchronous context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """As `Admin`."""
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security_of(properties or {})
        self._connections: dict[Address, AsyncConnection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        result: Any = None
        problem: ClientError | None = None
        while True:
            try:
                command = operation.send(result) if problem is None else operation.throw(problem)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return] # an operation returns its own type
            result, problem = None, None
            try:
                result = await self._done(command, deadline - loop.time())
            except ClientError as error:
                problem = error

    async def _done(self, command: Ask | Version | Pause, left_s: float) -> Any:
        if isinstance(command, Pause):
            await asyncio.sleep(max(0.0, min(command.seconds, left_s)))
            return left_s > command.seconds
        candidates = dict.fromkeys((*self._connections, *self._bootstrap)) if command.to is None else (command.to,)
        problem: ClientError = BrokerUnavailable("no broker is named")
        for address in candidates:
            connection = self._to(address)
            try:
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
        return handshake(None if self._security.mechanism is None else self._security.mechanism())

    describe_cluster = _asynchronous(cluster.describe_cluster)
    list_log_ends = _asynchronous(cluster.list_log_ends)
    describe_replicas = _asynchronous(cluster.describe_replicas)

    list_transactions = _asynchronous(transactions.list_transactions)
    describe_transaction = _asynchronous(transactions.describe_transaction)
    abort_transaction = _asynchronous(transactions.abort_transaction)
    list_open_transactions = _asynchronous(transactions.list_open_transactions)
    find_hanging_transactions = _asynchronous(transactions.find_hanging_transactions)
    find_owner = _asynchronous(transactions.find_owner)
    abort_hanging_transaction = _asynchronous(transactions.abort_hanging_transaction)

    list_reassignments = _asynchronous(reassignments.list_reassignments)
    alter_reassignments = _asynchronous(reassignments.alter_reassignments)
    place_replicas = _asynchronous(reassignments.place_replicas)

    list_groups = _asynchronous(groups.list_groups)
    list_share_groups = _asynchronous(groups.list_share_groups)
    describe_share_group = _asynchronous(share_groups.describe_share_group)
    list_share_group_offsets = _asynchronous(share_groups.list_share_group_offsets)
    alter_share_group_offsets = _asynchronous(share_groups.alter_share_group_offsets)
    list_streams_groups = _asynchronous(groups.list_streams_groups)
    describe_streams_group = _asynchronous(streams_groups.describe_streams_group)
    list_group_offsets = _asynchronous(groups.list_group_offsets)
    delete_group_offsets = _asynchronous(groups.delete_group_offsets)
    describe_group_history = _asynchronous(groups.describe_group_history)
    delete_groups = _asynchronous(groups.delete_groups)

    describe_features = _asynchronous(features.describe_features)
    update_features = _asynchronous(features.update_features)

    list_subscriptions = _asynchronous(telemetry.list_subscriptions)
    alter_subscription = _asynchronous(telemetry.alter_subscription)
    delete_subscription = _asynchronous(telemetry.delete_subscription)
    list_telemetry_clients = _asynchronous(telemetry.list_telemetry_clients)
