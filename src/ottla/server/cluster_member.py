"""A broker among others, with ZooKeeper or a quorum: what it copies, and its requests to other brokers.

ClusterMember          copying, in-sync replicas, failed log directories, requests to other brokers
  Membership           with ZooKeeper: a session, and a controller that sends requests
  QuorumMembership     with a quorum of controllers: registration, heartbeats, and its log
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.client.sockets import Connect
from ottla.cluster.controller import NewTopic
from ottla.cluster.image import MetadataImage
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicId
from ottla.metadata.registered_brokers import RegisteredBrokers
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.protocol.schema import Message
from ottla.replication.alter_partition_manager import AlterPartitionManager
from ottla.replication.decisions.throttles import Throttles
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.fetchers import ReplicaFetchers
from ottla.replication.roles import ReplicaRoles
from ottla.server.remote_coordination import ClusterMarkers, ClusterTransactions
from ottla.server.remote_share_state import ClusterShareState
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinators.markers import LocalMarkers
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.coordinators.transaction_coordinator import TransactionCoordinator
    from ottla.log.directories import LogDirectories
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.server.routing import Handler

CREATE_TOPICS_VERSION: Final = 7
ISR_CHECKS_PER_LAG: Final = 10
"""How often, in the time that a follower may lag, those that do are looked for."""
PARTITIONS_PER_TURN: Final = 500
HAND_OVER_S: Final = 5.0
"""How long at least a broker that stops waits for a controller that has others lead."""


class Lease(Protocol):
    """Whether this broker still holds its leadership."""

    def holds(self) -> bool:
        """Whether certainly no other broker has been elected at this moment."""
        ...


class ClusterMember(ABC):
    """A broker in a cluster. On the loop's thread."""

    leadership_lease: Lease
    coordinator: str
    """What coordinates the cluster, in sentences for operators."""

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`, 0 without a quorum."""
        return 0

    def __init__(
        self,
        metadata: "MetadataView",
        registered_brokers: RegisteredBrokers,
        replicas: "ReplicaManager",
        config: "BrokerConfig",
        clock: "Clock",
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        directories: "LogDirectories",
        stop_broker: Callable[[str], None],
        *,
        broker_epoch: Callable[[], int],
        knows_settings_of: Callable[[TopicId], bool],
    ) -> None:
        """`stop_broker` is called with the reason when this broker cannot go on; `knows_settings_of` is as for
        `ReplicaRoles`."""
        self.registered_brokers = registered_brokers
        self.roles = ReplicaRoles(replicas, knows_settings_of, clock)
        self._view = metadata
        self._config = config
        self._replicas = replicas
        self._loop = loop
        self._connect = connect
        self.throttles = Throttles(config.node_id)
        """How fast replicas are copied that have to catch up."""
        self._throttle(metadata.image, metadata.image)
        metadata.subscribe(self._throttle)
        self._fetchers = ReplicaFetchers(
            config,
            self.address_of,
            broker_epoch,
            loop,
            connect=connect,
            throttle=self.throttles.follower,
            full_directories=replicas.full_directories,
            start_over=replicas.start_over,
        )
        self._alter_partition_manager = AlterPartitionManager(config.node_id, broker_epoch, self.ask_controller, loop)
        self._peers: dict[tuple[BrokerId, bool], AsyncConnection] = {}
        """By broker, and whether they are for requests that wait there for others to act."""
        self._tasks = Tasks()
        self._failures = DirectoryFailures(
            replicas,
            directories,
            loop,
            notify_controller=self._report_failed_directory,
            stop_broker=stop_broker,
        )
        replicas.fetchers = self._fetchers
        replicas.propose = self._alter_partition_manager.propose
        replicas.is_coming = self.roles.is_coming

    # -- coming and going --------------------------------------------------------------------------------------------

    @abstractmethod
    async def join(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Join the cluster under these addresses, by listener. Raises an `OttlaError` that explains what to do."""

    @abstractmethod
    async def hand_over(self) -> None:
        """Have others lead what this broker leads, as far as they can: controlled shutdown."""

    def _hand_over_s(self) -> float:
        """How long that may take: as long as the settings of controlled shutdown allow, and `HAND_OVER_S` at least."""
        config = self._config
        longest_ms = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms
        return max(HAND_OVER_S, longest_ms / 1000)

    @abstractmethod
    async def leave(self) -> None:
        """Withdraw: others need not wait for what this broker still has to do."""

    @abstractmethod
    async def ask_controller(self, request: Message, version: int, *, timeout_s: float | None = None) -> Any:
        """Send a request to the current controller. Raises `BrokerUnavailable` if there is none for so long (None:
        request.timeout.ms). If the controller changes meanwhile, the request goes to the new one."""

    def forwards(self, api_key: ApiKey, own: Callable[[], "Handler"]) -> "Handler | None":
        """What forwards the requests of an API to the controller, in place of this broker's `own` handler; None for
        those that it answers itself."""
        return None

    @abstractmethod
    def _report_failed_directory(self) -> None:
        """Report to the controller, however long that takes, that a log directory has failed."""

    async def _close_shared(self) -> None:
        """Stop all that works on the replicas, and close the connections with other brokers."""
        await self._tasks.close()
        await self._failures.close()
        await self._alter_partition_manager.close()
        await self._fetchers.close()

    def _close_peers(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _throttle(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.configs is not new.configs or old is new:
            config, now = self._view.config, self._loop.time()
            self.throttles.leader.rate.change(config.leader_replication_throttled_rate, now)
            self.throttles.follower.rate.change(config.follower_replication_throttled_rate, now)
            self.throttles.read_topics(new)

    async def _drop_out_of_sync_followers(self) -> None:
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 1000 / ISR_CHECKS_PER_LAG)
            for number, partition in enumerate(self._replicas.partitions(), 1):
                partition.drop_out_of_sync_followers()
                if not number % PARTITIONS_PER_TURN:
                    await asyncio.sleep(0)

    # -- others ------------------------------------------------------------------------------------------------------

    def address_of(self, broker_id: BrokerId) -> tuple[str, int] | None:
        """Where another broker is reached by this one; None for one that is not alive."""
        broker = self._view.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(self._config.inter_broker_listener)

    async def ask(self, broker_id: BrokerId, request: Message, version: int, *, timeout_s: float | None = None) -> Any:
        """Another broker's answer. Raises `BrokerUnavailable`.

        A broker answers the requests of a connection one after the other, and the markers of transactions only when
        they are committed: they have one of their own.
        """
        address = self.address_of(broker_id)
        if address is None:
            raise BrokerUnavailable(f"broker {broker_id} is not alive")
        key = (broker_id, isinstance(request, WriteTxnMarkersRequest))
        peer = self._peers.get(key)
        if peer is not None and (peer.host, peer.port) != address:
            peer.close()
            peer = None
        if peer is None:
            peer = self._peers[key] = AsyncConnection(*address, f"broker-{self._config.node_id}", connect=self._connect)
        return await peer.ask(request, version, timeout_s=timeout_s or self._config.request_timeout_ms / 1000)

    def markers(self, local: "LocalMarkers") -> ClusterMarkers:
        """What brings the ends of transactions to all brokers."""
        return ClusterMarkers(local, self._view, self)

    def transactions(self, local: "TransactionCoordinator") -> ClusterTransactions:
        """The transaction coordinators of all brokers."""
        return ClusterTransactions(local, self._view, self)

    def share_state(self, local: "ShareCoordinator") -> ClusterShareState:
        """The share coordinators of all brokers."""
        return ClusterShareState(local, self._view, self)

    async def create_at_controller(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        """Have the controller create topics; answers in the order asked."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partition_count,
                    replication_factor=topic.replication_factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                        for number, replicas in topic.assignments
                    ],
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=self._config.request_timeout_ms,
        )
        try:
            answer = await self.ask_controller(request, CREATE_TOPICS_VERSION)
        except BrokerUnavailable as error:
            return [error for _ in topics]
        results = {result.name: result for result in answer.topics}
        return [_refusal(results[topic.name].error_code, results[topic.name].error_message) for topic in topics]


Join = Callable[["ReplicaManager"], ClusterMember]
"""Makes a broker that has replicas a member of the cluster that was opened."""


def _refusal(code: int, message: str | None) -> OttlaError | None:
    error = ErrorCode(code)
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):  # another broker was quicker, which is as good
        return None
    return ApiError(error, message or error.name)
