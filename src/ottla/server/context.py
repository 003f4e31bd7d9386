"""The context of a request, answers that come later, and the parts that handlers are bound to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.coordinators.markers import LocalMarkers
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.coordinators.share_groups import ShareGroupCoordinator
    from ottla.coordinators.streams_groups import StreamsGroupCoordinator
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.coordinators.verification import TransactionVerifier
    from ottla.metadata.acls import Acls
    from ottla.metadata.delegation_tokens import DelegationTokens
    from ottla.metadata.quorum_acls import FollowedAcls
    from ottla.metadata.registered_brokers import RegisteredBrokers
    from ottla.metadata.view import MetadataView
    from ottla.protocol.api import ApiKey
    from ottla.replication.alter_log_dirs import AlterLogDirs
    from ottla.replication.manager import ReplicaManager
    from ottla.server.access.access import Access
    from ottla.server.audit.audit_log import AuditLog
    from ottla.server.authentication import Authentication
    from ottla.server.client_quotas import ClientQuotas, Metered
    from ottla.server.cluster_member import ClusterMember
    from ottla.server.cold_fetches import ColdFetches
    from ottla.server.fetch_sessions import FetchSessionCache
    from ottla.server.keyed_queue import KeyedQueue
    from ottla.server.listeners import Listeners
    from ottla.server.membership import Membership
    from ottla.server.memory import MemoryBudget
    from ottla.server.metadata_topics import MetadataTopics
    from ottla.server.producer_connections import ProducerConnections
    from ottla.server.shared_answers import SharedAnswers
    from ottla.server.telemetry import Telemetry
    from ottla.share_partitions.led_partitions import SharePartitions
    from ottla.slices import Slices

ReplyT = TypeVar("ReplyT")
ResponseT = TypeVar("ResponseT")


class Deferred(Generic[ResponseT]):
    """A response that comes later, without a task: the parked request calls `complete` exactly once.

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
    """All parts of a running broker that handlers may use. Each handler is bound to those that it names (`binding`)."""

    config: "BrokerConfig"
    clock: "Clock"
    loop: "asyncio.AbstractEventLoop"
    metadata: "MetadataView"
    replicas: "ReplicaManager"
    alter_log_dirs: "AlterLogDirs"
    groups: "GroupCoordinator"
    markers: "LocalMarkers"
    verifier: "TransactionVerifier"
    transactional_queue: "KeyedQueue"
    """Transactional requests that wait, by producer id."""
    producer_connections: "ProducerConnections"
    transactions: "TransactionCoordinator"
    share_state: "ShareCoordinator"
    share_groups: "ShareGroupCoordinator"
    streams_groups: "StreamsGroupCoordinator"
    share_partitions: "SharePartitions"
    fetch_sessions: "FetchSessionCache"
    shared_answers: "SharedAnswers"
    metadata_topics: "MetadataTopics"
    cold_fetches: "ColdFetches"
    memory: "MemoryBudget"
    listeners: "Listeners"
    telemetry: "Telemetry"
    quotas: "ClientQuotas"
    slices: "Slices"
    acls: "Acls | FollowedAcls | None" = None
    """The rules of the cluster; None without an authorizer."""
    audit: "AuditLog | None" = None
    """Where logins, refusals and changes are noted; None without `ottla.audit.file`."""
    tokens: "DelegationTokens | None" = None
    """With which clients can log in, where there is a `delegation.token.secret.key`."""
    cluster: "ClusterMember | None" = None
    """This broker's part in a cluster, if it is in one."""

    @property
    def membership(self) -> "Membership | None":
        """This broker's part in a cluster with ZooKeeper, if it is in one."""
        return cast("Membership | None", self.cluster) if self.config.zookeeper_connect is not None else None

    @property
    def registered_brokers(self) -> "RegisteredBrokers | None":
        """The brokers of the cluster, as the store has them."""
        return None if self.cluster is None else self.cluster.registered_brokers


class ClientConnection(Protocol):
    """What handlers may know of the connection that a request came over."""

    client_host: str
    client_port: int
    listener: str
    local_host: str
    local_port: int
    connection_id: int

    @property
    def in_flight(self) -> int:
        """How many of its requests have not been answered."""
        ...

    authentication: "Authentication | None"

    @property
    def principal(self) -> str:
        """The sender of its requests."""
        ...

    def hold(self) -> Callable[[], None]:
        """Handle no further request until the returned function has been called, once."""
        ...

    def authenticated(self) -> None:
        """Take requests of every size from now on."""
        ...

    def finish(self) -> None:
        """Close as soon as everything is answered."""
        ...


class RequestContext:
    """The context of one request. Data of its connection is looked up there, since every request makes one."""

    __slots__ = (
        "_connection",
        "access",
        "api_key",
        "api_version",
        "client_id",
        "correlation_id",
        "from_broker",
        "is_large",
        "metered",
    )

    is_forwarded = False
    """Whether a broker has sent it for its client, in an Envelope."""
    is_by_token = False
    """Whether the client of a forwarded request has logged in with a delegation token."""

    def __init__(
        self,
        api_key: "ApiKey",
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: ClientConnection,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.from_broker = False
        """Whether a registered broker has sent it; looked at only for what brokers alone may send (`inter_broker`)."""
        self.is_large = False
        """Whether its answer may be large because it is."""
        self.access: Access | None = None
        """The rights of its client, for handlers that ask for them themselves; None without an authorizer."""
        self.metered: Metered | None = None
        """What it uses of its client's quotas; None while there are none."""
        self._connection = connection

    @property
    def client_host(self) -> str:
        return self._connection.client_host

    @property
    def client_port(self) -> int:
        return self._connection.client_port

    @property
    def listener(self) -> str:
        return self._connection.listener

    @property
    def local_host(self) -> str:
        """The address that the client dialled, advertised where nothing else is configured."""
        return self._connection.local_host

    @property
    def local_port(self) -> int:
        return self._connection.local_port

    @property
    def connection_id(self) -> int:
        return self._connection.connection_id

    @property
    def is_behind_others(self) -> bool:
        """Whether other requests of the connection wait for their answers, too."""
        return self._connection.in_flight > 1

    @property
    def principal(self) -> str:
        """Its sender, as `User:alice`; `User:ANONYMOUS` for a client that has proved no name."""
        return self._connection.principal

    @property
    def authentication(self) -> "Authentication | None":
        """The client's way to a user name; None at a listener without SASL."""
        return self._connection.authentication

    def authenticated(self) -> None:
        """The client has proved its name: take requests of every size from now on."""
        self._connection.authenticated()

    def close_connection_when_answered(self) -> None:
        """The answer to this request is the last one."""
        self._connection.finish()

    def hold_connection(self) -> Callable[[], None]:
        """Handle nothing more of this connection until the returned function has been called."""
        return self._connection.hold()
