"""Connections of a quorum node to the others: requests out, answers or failures in.

Each address has two connections, since the requests of one are answered in order: a fetch may wait at the leader for
half a second, and a vote must not wait behind it.
"""

import logging
from collections import OrderedDict
from typing import Final, Protocol

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import AuthenticationFailed, BrokerUnavailable, ClientError, UnsupportedRequest
from ottla.client.sansio.handshake import api_versions_request, handshake
from ottla.client.sockets import Connect
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.schema import Message
from ottla.quorum.effects import Destination, Send
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

CONNECTIONS_KEPT: Final = 64
"""A quorum has few nodes; addresses of former ones are forgotten."""
_PATIENT: Final = (FetchRequest, FetchSnapshotRequest)
_UNREACHABLE: Final = "quorum node at %s:%d cannot be asked for now: %s"


class Outcome(Protocol):
    """Receives the outcome of each request, once."""

    def answered(self, request_id: int, response: Message) -> None: ...

    def failed(self, request_id: int, *, unsupported: bool) -> None: ...


class Peers:
    """The connections. On the loop's thread."""

    def __init__(self, client_id: str, connect: Connect, outcome: Outcome) -> None:
        self._client_id = client_id
        self._connect = connect
        self._outcome = outcome
        self._connections: OrderedDict[tuple[str, int, bool], AsyncConnection] = OrderedDict()
        self._problems: dict[tuple[str, int], str] = {}
        """Why a node could not be asked the last time, so that this is logged once."""
        self._tasks = Tasks()

    def send(self, wanted: Send) -> None:
        """Send a request; its outcome is reported in a later turn of the loop."""
        self._tasks.spawn(self._ask(wanted), f"{type(wanted.request).__name__} to {wanted.to.host}:{wanted.to.port}")

    async def close(self) -> None:
        """Hang up; outcomes of requests under way are not reported."""
        await self._tasks.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _ask(self, wanted: Send) -> None:
        connection = self._to(wanted.to, patient=isinstance(wanted.request, _PATIENT))
        request = wanted.request
        if isinstance(request, ApiVersionsRequest):
            request = api_versions_request()  # with the name of this software, which genuine nodes insist on
        try:
            response = await connection.ask(request, timeout_s=wanted.timeout_ms / 1000)
        except UnsupportedRequest as problem:
            self._note(wanted.to, f"{problem}; the address must be that of a controller's listener")
            self._outcome.failed(wanted.id, unsupported=True)
        except (BrokerUnavailable, AuthenticationFailed, ClientError) as problem:
            self._note(wanted.to, str(problem))
            self._outcome.failed(wanted.id, unsupported=False)
        except Exception:  # without an outcome, nothing would be sent to that node any longer
            log.exception(
                "%s to the quorum node at %s:%d failed", type(request).__name__, wanted.to.host, wanted.to.port
            )
            self._outcome.failed(wanted.id, unsupported=False)
        else:
            self._problems.pop((wanted.to.host, wanted.to.port), None)
            self._outcome.answered(wanted.id, response)

    def _to(self, to: Destination, *, patient: bool) -> AsyncConnection:
        key = to.host, to.port, patient
        found = self._connections.get(key)
        if found is None:
            found = AsyncConnection(to.host, to.port, self._client_id, connect=self._connect, handshake=handshake)
            self._connections[key] = found
        self._connections.move_to_end(key)
        while len(self._connections) > CONNECTIONS_KEPT:
            (host, port, _), forgotten = self._connections.popitem(last=False)
            forgotten.close()
            self._problems.pop((host, port), None)
        return found

    def _note(self, to: Destination, problem: str) -> None:
        key = to.host, to.port
        if self._problems.get(key) != problem:
            self._problems[key] = problem
            log.warning(_UNREACHABLE, to.host, to.port, problem)
