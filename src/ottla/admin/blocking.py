"""`Admin`: the operations of `ottla.admin.operations`, run over blocking connections to a cluster."""

import time
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from ottla.admin.calls import CLIENT_ID, LARGEST_ANSWER_BYTES, TIMEOUT_S, BlockingDriver, Calls, Running
from ottla.admin.operations.core import Ask, Operation, Pause, Version
from ottla.client.addresses import parse_addresses
from ottla.client.blocking import Connection
from ottla.client.errors import BrokerUnavailable, ClientError, UnsupportedRequest
from ottla.client.pool import Connections
from ottla.client.security import security_of

T = TypeVar("T")


class Admin(Calls, BlockingDriver):
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
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """`bootstrap_servers`: `host:port,...`. `timeout_s`: how long each answer, and each operation that has to be
        tried again, may take. `properties`: `security.protocol`, `ssl.*`, `sasl.*`, as librdkafka or Java names them,
        and `oauth_cb` as confluent-kafka has it.

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._connections.close()

    def run(self, operation: Operation[T]) -> T:
        """Run one operation to its end; returns its result."""
        deadline = time.monotonic() + self._timeout_s
        running = Running(operation)
        while running.command is not None:
            try:
                outcome = self._done(running.command, deadline)
            except ClientError as error:
                outcome = error
            running.resume(outcome)
        return running.result

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
