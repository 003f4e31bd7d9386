"""Connections of the blocking driver to the brokers of a cluster, one each, opened when they are needed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from ottla.client.addresses import Address
from ottla.client.blocking import Connection, receive_each
from ottla.client.errors import BrokerSilent, ClientError, UnsupportedRequest
from ottla.protocol.schema import Message

IDLE_S: Final = 60.0
"""A connection that was not used for so long is opened anew: a firewall may have forgotten it without notice."""


def _answers(connections: Sequence[Connection]) -> Iterable[tuple[Connection, Any]]:
    """One answer of each connection; a `ClientError` for a broker that gives none."""
    if len(connections) != 1:
        return receive_each(connections).items()
    (connection,) = connections
    try:
        return [(connection, connection.receive())]
    except ClientError as error:
        return [(connection, error)]


def _ignore(address: Address) -> None:
    """Nobody keeps anything that belongs to a connection."""


class Connections:
    """For one thread at a time."""

    def __init__(
        self, connect: Callable[[Address], Connection], *, dropped: Callable[[Address], None] = _ignore
    ) -> None:
        """`dropped` is called with the address of a connection that failed."""
        self._connect = connect
        self._dropped = dropped
        self._open: dict[Address, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Address]:
        """The brokers to which there is a connection, the oldest first."""
        return iter(tuple(self._open))

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def to(self, address: Address) -> Connection:
        """The connection to a broker. Raises `ClientError`."""
        known = self._open.get(address)
        if known is not None and time.monotonic() > known.used_at + IDLE_S:
            self._close(known)
            known = None
        if known is None:
            known = self._open[address] = self._connect(address)
        return known

    def drop(self, connection: Connection) -> None:
        """Forget a connection that failed, or whose answers are no longer wanted."""
        self._close(connection)
        self._dropped(connection.address)

    def ask(self, address: Address, request: Message, newest: int | None = None) -> Any:
        """One broker's answer, as from `ask_each`. Raises `ClientError`."""
        answer = self.ask_each({address: request}, newest)[address]
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def ask_each(self, requests: Mapping[Address, Message], newest: int | None = None) -> dict[Address, Any]:
        """The answers of several brokers, which work at the same time; a `ClientError` for one that gives none.

        They are asked in the newest version that both ends know, not above `newest`. A connection that was kept and
        breaks is opened anew, once: its broker may have been restarted since. One that is silent is not.
        """
        kept = set(self._open)
        found = self._exchange(requests, newest)
        again = {
            address: requests[address]
            for address in kept & requests.keys()
            if isinstance(found[address], ClientError)
            and not isinstance(found[address], BrokerSilent | UnsupportedRequest)
        }
        return {**found, **self._exchange(again, newest)} if again else found

    def _exchange(self, requests: Mapping[Address, Message], newest: int | None) -> dict[Address, Any]:
        found: dict[Address, Any] = {}
        waiting: dict[Address, Connection] = {}
        try:
            for address, request in requests.items():
                try:
                    connection = waiting[address] = self.to(address)
                    assert request.API_KEY is not None
                    connection.send(request, connection.version(request.API_KEY, newest))
                except ClientError as error:
                    found[address] = error
                    if address in waiting:
                        self._drop_if_unusable(waiting.pop(address), error)
            for connection, answer in _answers(list(waiting.values())):
                found[connection.address] = answer
                if isinstance(answer, ClientError):
                    self.drop(connection)
                del waiting[connection.address]
        finally:
            for connection in waiting.values():  # interrupted: their answers would be taken for those to the next ones
                self.drop(connection)
        return found

    def _drop_if_unusable(self, connection: Connection, error: ClientError) -> None:
        if not isinstance(error, UnsupportedRequest):
            self.drop(connection)

    def _close(self, connection: Connection) -> None:
        connection.close()
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
