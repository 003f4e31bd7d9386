"""`Admin`: the operations of `ottla.admin.operations`, run over blocking connections to a cluster."""

import functools
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

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
from ottla.client.addresses import parse_addresses
from ottla.client.blocking import Connection
from ottla.client.errors import BrokerUnavailable, ClientError, UnsupportedRequest
from ottla.client.pool import Connections
from ottla.client.security import security_of

CLIENT_ID: Final = "ottla-admin"
TIMEOUT_S: Final = 10.0
LARGEST_ANSWER_BYTES: Final = 256 << 20

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(operation: Callable[P, Operation[T]]) -> Callable[Concatenate["Admin", P], T]:
    """A method of `Admin` from an operation."""

    @functools.wraps(operation)
    def method(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation(*args, **kwargs))

    return method


class Admin:
    """What no client library offers, for Ottla's brokers and Apache Kafka's; blocking. A context manager.

        with Admin("localhost:9092") as admin:
            for transaction in admin.list_transactions(states=["Ongoing"]):
                ...

    For one thread at a time. Connections are opened when they are needed, and kept until `close`. Every method may
    raise `ClientError`: its subclasses say whether a broker refused (`RequestRefused`, `NotFound`), cannot be reached
    (`BrokerUnavailable`), does not serve the request (`UnsupportedRequest`), or refuses this client
    (`AuthenticationFailed`).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`bootstrap_servers`: `host:port,...`. `timeout_s`: how long each answer, and each operation that has to be
        tried again, may take. `properties`: `security.protocol`, `ssl.*` and `sasl.*`, as librdkafka names them.

        Raises ValueError for servers that are no addresses, or a protection that is not understood.
        """
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._timeout_s = timeout_s
        security = security_of(properties or {})
        self._connections = Connections(
            lambda address: Connection(
                address,
                client_id=client_id,
                timeout_s=timeout_s,
                security=security,
                largest_frame_bytes=LARGEST_ANSWER_BYTES,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._connections.close()

    def run(self, operation: Operation[T]) -> T:
        """Run one operation to its end; returns its result."""
        deadline = time.monotonic() + self._timeout_s
        result: Any = None
        problem: ClientError | None = None
        while True:
            try:
                command = operation.send(result) if problem is None else operation.throw(problem)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return] # an operation returns its own type
            result, problem = None, None
            try:
                result = self._done(command, deadline)
            except ClientError as error:
                problem = error

    def _done(self, command: Ask | Version | Pause, deadline: float) -> Any:
        if isinstance(command, Pause):
            left_s = deadline - time.monotonic()
            time.sleep(max(0.0, min(command.seconds, left_s)))
            return left_s > command.seconds
        candidates = dict.fromkeys((*self._connections, *self._bootstrap)) if command.to is None else (command.to,)
        problem: ClientError = BrokerUnavailable("no broker is named")
        for address in candidates:
            try:
                if isinstance(command, Version):
                    return self._connections.to(address).version(command.api_key)
                return self._connections.ask(address, command.request, command.newest)
            except UnsupportedRequest:
                raise
            except ClientError as error:
                problem = error
        raise problem

    describe_cluster = _blocking(cluster.describe_cluster)
    list_log_ends = _blocking(cluster.list_log_ends)
    describe_replicas = _blocking(cluster.describe_replicas)

    list_transactions = _blocking(transactions.list_transactions)
    describe_transaction = _blocking(transactions.describe_transaction)
    abort_transaction = _blocking(transactions.abort_transaction)
    list_open_transactions = _blocking(transactions.list_open_transactions)
    find_hanging_transactions = _blocking(transactions.find_hanging_transactions)
    find_owner = _blocking(transactions.find_owner)
    abort_hanging_transaction = _blocking(transactions.abort_hanging_transaction)

    list_reassignments = _blocking(reassignments.list_reassignments)
    alter_reassignments = _blocking(reassignments.alter_reassignments)
    place_replicas = _blocking(reassignments.place_replicas)

    list_groups = _blocking(groups.list_groups)
    list_share_groups = _blocking(groups.list_share_groups)
    describe_share_group = _blocking(share_groups.describe_share_group)
    list_share_group_offsets = _blocking(share_groups.list_share_group_offsets)
    alter_share_group_offsets = _blocking(share_groups.alter_share_group_offsets)
    list_streams_groups = _blocking(groups.list_streams_groups)
    describe_streams_group = _blocking(streams_groups.describe_streams_group)
    list_group_offsets = _blocking(groups.list_group_offsets)
    delete_group_offsets = _blocking(groups.delete_group_offsets)
    describe_group_history = _blocking(groups.describe_group_history)
    delete_groups = _blocking(groups.delete_groups)

    describe_features = _blocking(features.describe_features)
    update_features = _blocking(features.update_features)

    list_subscriptions = _blocking(telemetry.list_subscriptions)
    alter_subscription = _blocking(telemetry.alter_subscription)
    delete_subscription = _blocking(telemetry.delete_subscription)
    list_telemetry_clients = _blocking(telemetry.list_telemetry_clients)
