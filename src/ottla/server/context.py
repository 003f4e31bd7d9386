"""What a handler gets besides its request: who asks, at which version, and the parts of the broker it may call."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.cluster.metadata_view import MetadataView
    from ottla.cluster.registered_brokers import RegisteredBrokers
    from ottla.config.broker import BrokerConfig
    from ottla.coordination.group_coordinator import GroupCoordinator
    from ottla.coordination.markers import LocalMarkers
    from ottla.coordination.share_coordinator import ShareCoordinator
    from ottla.coordination.share_groups import ShareGroupCoordinator
    from ottla.coordination.streams_groups import StreamsGroupCoordinator
    from ottla.coordination.transaction_coordinator import TransactionCoordinator
    from ottla.coordination.verification import TransactionVerifier
    from ottla.protocol.api import ApiKey
    from ottla.replication.directory_moves import DirectoryMoves
    from ottla.replication.manager import ReplicaManager
    from ottla.server.cold_fetches import ColdFetches
    from ottla.server.fetch_sessions import FetchSessionCache
    from ottla.server.membership import Membership
    from ottla.server.memory import MemoryBudget
    from ottla.server.metadata_topics import MetadataTopics
    from ottla.server.producer_connections import ProducerConnections
    from ottla.server.share_partitions import SharePartitions
    from ottla.server.turns import Turns

ReplyT = TypeVar("ReplyT")
ResponseT = TypeVar("ResponseT")


class Deferred(Generic[ResponseT]):
    """An answer that comes later, without a task: whoever parked the request calls `complete` exactly once.

    The hot handlers (produce, fetch) answer through this instead of a coroutine, which would cost a task per request.
    """

    __slots__ = ("_deliver", "_response", "keeps_request", "on_abandoned")

    def __init__(self, *, keeps_request: bool = False) -> None:
        """`keeps_request`: the request's bytes stay in memory until it is answered, and count as held until then."""
        self.keeps_request = keeps_request
        self._deliver: Callable[[ResponseT | Exception], None] | None = None
        self._response: ResponseT | Exception | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """What to do when the client is gone before it is answered."""

    def complete(self, response: ResponseT | Exception) -> None:
        """Give the answer, or say why there is none; on the loop's thread."""
        self.on_abandoned = None
        deliver, self._deliver = self._deliver, None
        if deliver is None:
            self._response = response
        else:
            deliver(response)

    def deliver_to(self, deliver: Callable[[ResponseT | Exception], None]) -> None:
        """Say where the answer goes; an answer that is already there goes at once."""
        if self._response is None:
            self._deliver = deliver
        else:
            deliver(self._response)

    def future(self) -> "asyncio.Future[ResponseT]":
        """The answer, for a coroutine to wait for; in place of `deliver_to`."""
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()

        def settle(response: ResponseT | Exception) -> None:
            if future.done():
                return  # cancelled
            if isinstance(response, Exception):
                future.set_exception(response)
            else:
                future.set_result(response)

        self.deliver_to(settle)
        return future


def when_done(
    reply: "asyncio.Future[ReplyT]", respond: Callable[[ReplyT], ResponseT]
) -> "ResponseT | Deferred[ResponseT]":
    """The response made of a reply: at once if that is there, else when it comes. Neither takes a task.

    Raises what the reply failed with, if that is known by now.
    """
    if reply.done():
        return respond(reply.result())
    deferred: Deferred[ResponseT] = Deferred()

    def complete(_: "asyncio.Future[ReplyT]") -> None:
        if reply.cancelled():
            return  # the broker stops, and the connection is closed
        failure = reply.exception()
        if failure is None:
            try:
                deferred.complete(respond(reply.result()))
                return
            except Exception as error:
                failure = error
        deferred.complete(failure if isinstance(failure, Exception) else RuntimeError(str(failure)))

    reply.add_done_callback(complete)
    return deferred


@dataclass(slots=True)
class Services:
    """The parts of a running broker, as handlers see them."""

    config: "BrokerConfig"
    clock: "Clock"
    loop: "asyncio.AbstractEventLoop"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    directory_moves: "DirectoryMoves"
    groups: "GroupCoordinator"
    markers: "LocalMarkers"
    verifier: "TransactionVerifier"
    turns: "Turns"
    """Of producers whose transactional requests wait, by producer id."""
    producer_connections: "ProducerConnections"
    transactions: "TransactionCoordinator"
    share_state: "ShareCoordinator"
    share_groups: "ShareGroupCoordinator"
    streams_groups: "StreamsGroupCoordinator"
    share_partitions: "SharePartitions"
    fetch_sessions: "FetchSessionCache"
    metadata_topics: "MetadataTopics"
    cold_fetches: "ColdFetches"
    memory: "MemoryBudget"
    cluster: "Membership | None" = None
    """This broker's part in a cluster, if it is in one."""

    @property
    def registered_brokers(self) -> "RegisteredBrokers | None":
        """The brokers of the cluster, as the store has them."""
        return None if self.cluster is None else self.cluster.registered_brokers


def _not_held() -> Callable[[], None]:
    return lambda: None


@dataclass(slots=True)
class RequestContext:
    """One request's circumstances.

    `local_host` and `local_port` are the address the client dialled, advertised where nothing else is configured.
    """

    api_key: "ApiKey"
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener: str
    local_host: str
    local_port: int
    principal: str
    connection_id: int
    broker: Services
    hold_connection: Callable[[], Callable[[], None]] = _not_held
    """Handle nothing more of this connection until what is returned has been called."""
    from_broker: bool = False
    """Whether a registered broker has sent it; looked at only for what brokers alone may send (`inter_broker`)."""
