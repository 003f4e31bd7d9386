"""The composition root: builds the parts of one broker, starts and stops them in order. No logic.

start   directories (lock, load, recover) -> metadata -> partitions -> coordinators -> listeners -> the cluster
stop    the cluster (hand over) -> coordinators (drain) -> the cluster (leave) -> listeners -> coordinators
        -> partitions (flush, checkpoint, clean-shutdown marker) -> metadata -> directories
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from uuid import UUID, uuid4

from ottla.cluster.image import empty_image
from ottla.config.broker import BrokerConfig
from ottla.config.loading import load
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.markers import LocalMarkers
from ottla.coordinators.share_coordinator import ShareCoordinator
from ottla.coordinators.share_groups import ShareGroupCoordinator
from ottla.coordinators.streams_groups import StreamsGroupCoordinator
from ottla.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.coordinators.verification import TransactionVerifier
from ottla.ids import uuid_to_text
from ottla.log.directories import LogDirectories
from ottla.metadata.policies import Policies, open_policies
from ottla.metadata.service import MetadataService, new_id
from ottla.metadata.store.embedded import FILE_NAME, EmbeddedStore
from ottla.metadata.view import MetadataView
from ottla.platform import Platform
from ottla.replication.alter_log_dirs import AlterLogDirs
from ottla.replication.compaction import Compaction
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.maintenance import Maintenance
from ottla.replication.manager import ReplicaManager
from ottla.server.client_quotas import ClientQuotas
from ottla.server.cold_fetches import ColdFetches
from ottla.server.connection_limits import ConnectionLimits, follow_settings
from ottla.server.context import Services
from ottla.server.dispatch import Dispatcher
from ottla.server.fetch_sessions import FetchSessionCache
from ottla.server.keyed_queue import KeyedQueue
from ottla.server.listeners import Listeners
from ottla.server.memory import DEFAULT_BYTES, MemoryBudget
from ottla.server.metadata_topics import MetadataTopics
from ottla.server.node_security import NodeSecurity
from ottla.server.producer_connections import ProducerConnections
from ottla.server.shared_answers import SharedAnswers
from ottla.server.telemetry import Telemetry
from ottla.share_partitions.led_partitions import SharePartitions
from ottla.slices import Slices

if TYPE_CHECKING:
    from ottla.metadata.quorum.node import QuorumNode
    from ottla.replication.group_commit import GroupCommit
    from ottla.server.cluster_member import ClusterMember, Join
    from ottla.server.connection import FrameHandler
    from ottla.server.controller_server import ControllerServer
    from ottla.server.metrics.broker_metrics import BrokerMetrics
    from ottla.server.migration import Migration
    from ottla.server.migration_switch import MigrationSwitch
    from ottla.server.quorum_opening import OpenNode

log = logging.getLogger("ottla")

DRAIN_S: Final = 5.0
"""How long coordinators of a broker that stops wait for what they are writing: for its own disk,"""
DRAIN_IN_CLUSTER_S: Final = 0.1
"""The same in a cluster, where followers may never fetch again. Such records are on the next leader, or were never
acknowledged."""


class Broker:
    """One broker, as an async context manager: inside, it serves.

    `BrokerConfig` holds all its settings. OttlaError or OSError on entry explain why it cannot start.
    """

    def __init__(self, config: BrokerConfig, *, platform: Platform | None = None) -> None:
        self.config = config
        self._platform = platform or Platform()
        self._stack = AsyncExitStack()
        self._listeners: Listeners | None = None
        self._shared: Mapping[str, Sequence[socket.socket]] = {}
        self._metadata: MetadataView | None = None
        self._replicas: ReplicaManager | None = None
        self._directories: LogDirectories | None = None
        self._security = NodeSecurity(self._platform.fs, self._platform.clock, self._platform.connect, self._give_up)
        self._node: QuorumNode | None = None
        """The node of the quorum that the process has, if it is more than the broker's own."""
        self._switch: MigrationSwitch | None = None
        """The move from ZooKeeper, of a broker that has not moved yet."""
        self.controller: ControllerServer | None = None
        """The controller of this process, if it has that role in a quorum."""
        self.failure: str | None = None
        """Why it cannot go on."""
        self.metrics_ports: list[int] = []
        """The ports at which metrics are served, in the order of `metrics.listeners`."""
        self.descriptors: int | None = None
        """How many files and connections the process may have open, if it is this broker's alone."""
        self.on_failure: Callable[[], None] = _nothing
        """Called when it cannot go on: it is to be stopped."""

    @classmethod
    def configured(
        cls,
        properties_file: Path | None,
        overrides: Mapping[str, str],
        *,
        strict: bool = False,
        allow_insecure: bool = False,
        platform: Platform | None = None,
    ) -> Self:
        """A broker with the settings of a file and what overrides them; see `load`. Raises InvalidConfig."""
        config, warnings = load(properties_file, overrides, strict=strict, allow_insecure=allow_insecure)
        for warning in warnings:
            log.warning("setting without effect: %s", warning)
        return cls(config, platform=platform)

    @property
    def ports(self) -> Mapping[str, int]:
        """Listener name to the port it is bound to."""
        return {} if self._listeners is None else self._listeners.ports

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()))

    @property
    def replicas(self) -> ReplicaManager:
        """The partitions it holds. RuntimeError before it has been started."""
        if self._replicas is None:
            raise RuntimeError("the broker has not been started")
        return self._replicas

    @property
    def metadata(self) -> MetadataView:
        """What it knows of its cluster. RuntimeError before it has been started."""
        if self._metadata is None:
            raise RuntimeError("the broker has not been started")
        return self._metadata

    def share(self, sockets: Mapping[str, Sequence[socket.socket]]) -> Callable[[], None]:
        """Accept connections also at listening sockets that other processes have, too, by the name of a listener.

        For a broker that serves; returns what ends it.
        """
        assert self._listeners is not None
        self._shared = sockets
        self._listeners.share(sockets)

        def unshare() -> None:
            self._shared = {}
            if self._listeners is not None:
                self._listeners.unshare()

        return unshare

    def abandon_start(self) -> None:
        """Have a start that is under way end sooner once it is cancelled: what is being recovered is not finished."""
        if self._directories is not None:
            self._directories.abandon_load()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _give_up(self, reason: str) -> None:
        self.failure = reason
        self.on_failure()

    def addresses(self) -> list[str]:
        """Where clients reach it, as `PLAINTEXT://host:port`."""
        endpoints = {} if self._listeners is None else self._listeners.endpoints
        return [f"{name}://{host}:{port}" for name, (host, port) in endpoints.items()]

    async def _start(self, stack: AsyncExitStack) -> None:
        """Build and start every part; `stack` stops what was started, in reverse."""
        config, platform, clock = self.config, self._platform, self._platform.clock
        loop = asyncio.get_running_loop()

        metrics = self._open_metrics(loop, stack)
        slices = Slices(clock)
        limits = ConnectionLimits(config, descriptors=self.descriptors)
        memory = MemoryBudget(
            loop,
            limit_bytes=config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else DEFAULT_BYTES,
            largest_request_bytes=config.socket_request_max_bytes,
        )
        stack.callback(memory.close)
        policies = await open_policies(config)
        stack.push_async_callback(policies.close)
        directories = LogDirectories(config.log_dirs, fs=platform.fs, clock=clock, goes_on=config.is_in_cluster)
        self._directories = directories
        stack.callback(directories.close)
        process = _Process(loop, metrics, slices, limits, memory, policies, directories)
        migration = await self._open_migration(stack)
        if metrics is not None and config.is_in_cluster:
            from ottla.server.migration_state import state_of  # only a node of a cluster pays for it

            metrics.migration_state = lambda: (
                state_of(self.config, platform.fs) if migration is None else migration.state
            )
        await self._start_controller(process, migration, stack)
        if self.controller is not None and "broker" not in config.process_roles:
            if migration is not None:
                migration.leave_when_moved(self.controller.node, self._give_up)
            return
        if migration is None:
            await self._start_broker(process, stack)
        else:
            await self._start_to_move(process, migration, stack)

    async def _start_broker(self, process: "_Process", stack: AsyncExitStack, moved_as: UUID | None = None) -> None:
        """Build and start all that a broker has beside what its process has; `stack` stops it, in reverse.

        `moved_as` is as for `BrokerLifecycle`.
        """
        config, platform, clock = self.config, self._platform, self._platform.clock
        loop, metrics, slices, limits, memory, policies, directories = process
        listeners = self._listeners = Listeners(platform.open_sockets, limits, memory, loop)
        stack.push_async_callback(listeners.close_certificates)
        stack.callback(listeners.close)
        metadata, join = await self._open_metadata(directories, policies, listeners, stack, moved_as)
        self._metadata = metadata

        def cordon(*_: object) -> None:
            directories.cordoned = metadata.config.cordoned_log_dirs

        cordon()
        stack.callback(metadata.subscribe(cordon))
        replicas = self._replicas = ReplicaManager(metadata, directories, loop, new_flusher=platform.new_flusher)
        stack.push_async_callback(replicas.close)
        moves = AlterLogDirs(
            replicas, directories, loop, lambda: metadata.config.replica_alter_log_dirs_io_max_bytes_per_second
        )
        stack.push_async_callback(moves.close)
        loaded = await loop.run_in_executor(replicas.threads.loading, directories.load_all, metadata.log_config)
        membership = None if join is None else join(replicas)
        if membership is None:
            DirectoryFailures(
                replicas,
                directories,
                loop,
                notify_controller=None,
                stop_broker=self._give_up,
                metadata_directory=Path(config.metadata_log_dir or config.log_dirs[0]),
            )
        replicas.start(loaded, in_cluster=membership is not None)
        maintenance = Maintenance(config, replicas, directories, loop, clock)
        stack.push_async_callback(maintenance.close)
        maintenance.start()
        compaction = Compaction(lambda: metadata.config, replicas, directories, loop, clock)
        stack.push_async_callback(compaction.close)
        compaction.start()

        groups = GroupCoordinator.of_broker(config, metadata, replicas, clock)
        stack.push_async_callback(groups.stop)
        markers = LocalMarkers(replicas, groups, clock, config.request_timeout_ms)
        marker_sender = markers if membership is None else membership.markers(markers)
        transactions = TransactionCoordinator.of_broker(config, metadata, replicas, marker_sender, clock)
        stack.push_async_callback(transactions.stop)
        share_state = ShareCoordinator.of_broker(config, metadata, replicas, clock)
        stack.push_async_callback(share_state.stop)
        share_states = share_state if membership is None else membership.share_state(share_state)
        share_groups = ShareGroupCoordinator.of_broker(groups, share_states, metadata)
        stack.push_async_callback(share_groups.stop)
        streams_groups = StreamsGroupCoordinator(groups, metadata, clock)
        stack.push_async_callback(streams_groups.stop)

        share_partitions = SharePartitions(config, metadata, replicas, share_states, clock, loop)
        stack.callback(share_partitions.close)

        telemetry = Telemetry(config.telemetry_max_bytes, new_id=new_id)
        quotas = ClientQuotas(config, clock)
        for follow in (telemetry.follow, quotas.follow):
            follow(empty_image(""), metadata.image)
            stack.callback(metadata.subscribe(follow))
        quotas.subscribe(limits.limit_addresses)

        def disconnected(connection_id: int) -> None:
            share_partitions.sessions.disconnected(connection_id)
            telemetry.disconnected(connection_id)

        cold_fetches = ColdFetches(loop, replicas.threads.reads)
        transactional_queue = KeyedQueue()
        stack.push_async_callback(transactional_queue.close)
        acls = await self._security.open_acls(self.config, metadata, stack)
        tokens = await self._security.open_tokens(self.config, metadata, stack)
        audit = await self._security.open_audit(self.config, stack)
        services = Services(
            config=config,
            clock=clock,
            loop=loop,
            metadata=metadata,
            replicas=replicas,
            alter_log_dirs=moves,
            groups=groups,
            markers=markers,
            verifier=TransactionVerifier(
                transactions if membership is None else membership.transactions(transactions),
                lambda: metadata.config,
            ),
            transactional_queue=transactional_queue,
            producer_connections=ProducerConnections(),
            transactions=transactions,
            share_state=share_state,
            share_groups=share_groups,
            streams_groups=streams_groups,
            share_partitions=share_partitions,
            fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots),
            shared_answers=SharedAnswers(loop),
            metadata_topics=MetadataTopics(),
            cold_fetches=cold_fetches,
            memory=memory,
            listeners=listeners,
            telemetry=telemetry,
            quotas=quotas,
            slices=slices,
            acls=acls,
            audit=audit,
            tokens=tokens,
            cluster=membership,
        )
        dispatcher = Dispatcher(services)
        stack.push_async_callback(dispatcher.close)
        handle_frame = self._observed(dispatcher, metrics, replicas.flushers().values(), loop, stack)
        follow_settings(limits, metadata, loop)
        stack.callback(listeners.close)
        listeners.start(
            metadata, handle_frame, disconnected, load_for=cold_fetches.load_for, tokens=tokens, audit=audit
        )
        if membership is not None:
            stack.push_async_callback(membership.leave)
        timeout_s = DRAIN_S if membership is None else DRAIN_IN_CLUSTER_S
        for coordinator in (groups, transactions, share_state):
            stack.push_async_callback(coordinator.drain, timeout_s)
        if membership is not None:
            stack.push_async_callback(self._hand_over, membership)
            await membership.join(listeners.endpoints)
        listeners.share(self._shared)
        if metrics is not None:
            metrics.serving(services, compaction)
            stack.callback(metrics.stopping)

    async def _hand_over(self, membership: "ClusterMember") -> None:
        """Have others lead before this broker stops; one that moves goes on to lead in a moment."""
        if self._switch is None or not self._switch.is_under_way:
            await membership.hand_over()

    async def _open_migration(self, stack: AsyncExitStack) -> "Migration | None":
        """The move of the cluster from ZooKeeper; None for a node of another cluster, or one that has moved."""
        if not self.config.is_migrating:
            return None
        from ottla.server.migration import has_left, open_migration  # only a node that moves pays for it

        if has_left(self.config, self._platform.fs):
            self.config = self.config.under_quorum()
            return None
        return await open_migration(self.config, self._platform.open_store, self._platform.fs, stack)

    async def _start_to_move(self, process: "_Process", migration: "Migration", stack: AsyncExitStack) -> None:
        """Start the broker with ZooKeeper, unless the move has begun, and have it go on under the quorum later."""
        from ottla.server.migration import open_observer
        from ottla.server.migration_switch import MigrationSwitch

        await self._security.open_audit(self.config, stack)
        given, directories = self.config, process.directories
        listeners = Listeners(self._platform.open_sockets, process.limits, process.memory, process.loop)
        stack.push_async_callback(listeners.close_certificates)
        connect = self._security.to_controllers(self.config, listeners, stack)
        if self._node is None:
            cluster_id, config = migration.cluster_id, given.under_quorum()
            self._node = await open_observer(config, cluster_id, directories, connect, stack, self._give_up)

        async def begin(config: BrokerConfig, moved_as: UUID | None) -> AsyncExitStack:
            self.config = config
            async with AsyncExitStack() as part:
                part.callback(directories.unload)
                await self._start_broker(process, part, moved_as)
                return part.pop_all()

        self._switch = MigrationSwitch(migration, self._node, connect, given, begin, self._give_up)
        stack.push_async_callback(self._switch.close)
        await self._switch.start(lambda: self.metadata, directories)

    async def _start_controller(
        self, process: "_Process", migration: "Migration | None", stack: AsyncExitStack
    ) -> None:
        """Start the controller of this process, if it has that role in a quorum."""
        if self.config.quorum is None or "controller" not in self.config.process_roles:
            return
        from ottla.server.controller_process import start_controller  # only a controller pays for it

        listeners = Listeners(self._platform.open_sockets, process.limits, process.memory, process.loop)
        metrics, is_alone = process.metrics, "broker" not in self.config.process_roles

        def observe(dispatcher: Dispatcher) -> "FrameHandler":
            return self._observed(dispatcher, metrics, (), process.loop, stack) if is_alone else dispatcher

        self.controller = await start_controller(
            self.config if migration is None else self.config.under_quorum(),
            self._platform.clock,
            listeners,
            self._security.to_controllers(self.config, listeners, stack),
            process.directories,
            stack,
            policies=process.policies,
            failed=self._give_up,
            audit=await self._security.open_audit(self.config, stack),
            reach=self._platform.connect,
            migration=migration,
            open_authorizer=lambda settings: self._security.open_authorizer(self.config, settings, stack),
            observe=observe,
        )
        self._node = self.controller.node
        if is_alone:
            self._listeners = listeners
        if metrics is not None:
            metrics.controlling(self.controller, listeners if is_alone else None)
            stack.callback(metrics.stopping)

    def _observed(
        self,
        dispatcher: Dispatcher,
        metrics: "BrokerMetrics | None",
        flushers: "Iterable[GroupCommit]",
        loop: asyncio.AbstractEventLoop,
        stack: AsyncExitStack,
    ) -> "FrameHandler":
        """The dispatcher, with its requests counted and slow ones traced where that is asked for."""
        config, clock = self.config, self._platform.clock
        handle = dispatcher if metrics is None else metrics.meter(dispatcher)
        if config.tracing_endpoint is None:
            return handle
        from ottla.server.request_tracer import RequestTracer  # only a broker that traces pays for its code
        from ottla.tracing import Tracer

        tracer = Tracer(config.tracing_endpoint, "ottla-broker", str(config.node_id))
        stack.push_async_callback(asyncio.to_thread, tracer.close)
        slow_s = config.tracing_slow_request_ms / 1000
        traced = RequestTracer(handle, tracer, loop, clock.monotonic, clock.now_ms, slow_s)
        traced.follow(flushers)
        return traced

    def _open_metrics(self, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> "BrokerMetrics | None":
        """What is measured, and where it is read; None without `metrics.listeners`, which costs nothing."""
        if not self.config.metrics_listeners:
            return None
        from ottla.server.metrics.broker_metrics import BrokerMetrics

        metrics = BrokerMetrics(self.config, self._platform.clock, loop)
        metrics.__enter__()
        stack.push_async_callback(metrics.close)
        self.metrics_ports = metrics.ports
        return metrics

    async def _open_cluster(
        self,
        directories: LogDirectories,
        policies: Policies,
        listeners: Listeners,
        stack: AsyncExitStack,
        moved_as: UUID | None,
    ) -> "tuple[MetadataView, Join]":
        """The metadata of a cluster, and how this broker becomes a member. Only one in a cluster pays for that code."""
        config, platform = self.config, self._platform
        connect = self._security.to_brokers(config, listeners, stack)
        if config.quorum is not None:
            from ottla.server.quorum_opening import open_quorum

            return await open_quorum(
                config,
                platform.clock,
                connect,
                self._security.to_controllers(self.config, listeners, stack),
                platform.resolve,
                self._opens_node(),
                directories,
                stack,
                self._give_up,
                policies,
                replay=None if self.controller is None else self.controller.replay,
                moved_as=moved_as,
            )
        from ottla.server.membership import open_cluster

        return await open_cluster(
            config,
            platform.clock,
            connect,
            platform.resolve,
            platform.open_store,
            directories,
            stack,
            self._give_up,
            policies,
            may_move=self._node is not None,
        )

    def _opens_node(self) -> "OpenNode":
        """How this broker follows the log of a quorum: by a node of its own, or by that of its process."""
        if self._node is not None:
            from ottla.server.controller_process import shares

            return shares(self._node)
        from ottla.server.quorum_opening import opens_observers

        return opens_observers(self._platform.fs, self._platform.clock)

    async def _open_metadata(
        self,
        directories: LogDirectories,
        policies: Policies,
        listeners: Listeners,
        stack: AsyncExitStack,
        moved_as: UUID | None,
    ) -> "tuple[MetadataView, Join | None]":
        """In a file, changed by this broker; in ZooKeeper, or in the log of a quorum, changed by a controller.

        With the latter two comes how this broker becomes a member.
        """
        config, platform = self.config, self._platform
        if config.is_in_cluster:
            opened: tuple[MetadataView, Join] = await self._open_cluster(
                directories, policies, listeners, stack, moved_as
            )
            listeners.open(opened[0].config, config)
            return opened
        file = Path(config.metadata_log_dir or config.log_dirs[0]) / FILE_NAME
        cluster_id = directories.find_cluster_id() or uuid_to_text(uuid4())
        directories.acquire(cluster_id=cluster_id, node_id=config.node_id)
        alone = MetadataService((platform.open_store or EmbeddedStore)(file), config, platform.clock, policies=policies)

        def listen(config: BrokerConfig) -> Mapping[str, tuple[str, int]]:
            listeners.open(config, self.config)
            return listeners.endpoints

        await alone.start(
            listen,
            cluster_id=cluster_id,
            adopt_from=[*dict.fromkeys([*config.log_dirs, file.parent])],
            new_leader_epochs=not all(directory.was_clean for directory in directories.directories),
        )
        stack.push_async_callback(alone.close)
        return alone, None


class _Process(NamedTuple):
    """What a process has once, whatever becomes of its broker."""

    loop: asyncio.AbstractEventLoop
    metrics: "BrokerMetrics | None"
    slices: Slices
    limits: ConnectionLimits
    memory: MemoryBudget
    policies: Policies
    directories: LogDirectories


def _nothing() -> None:
    """The default callback: do nothing."""
