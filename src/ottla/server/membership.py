"""A broker's part in its cluster: it registers, follows, may become the controller, and hands over before it stops.

join    register -> race for `/controller` -> receive the metadata from the controller
leave   controlled shutdown -> stop copying -> resign as controller -> end the session
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import BrokerUnavailable
from ottla.client.sockets import Connect, Resolve
from ottla.cluster.broker_sessions import lease_ms
from ottla.cluster.elections import led_by
from ottla.cluster.image import MetadataImage
from ottla.config.zookeeper import zookeeper_security
from ottla.errors import ErrorCode, OttlaError
from ottla.metadata.active_controller import ActiveController
from ottla.metadata.cluster_controller import ClusterController
from ottla.metadata.cluster_metadata import ClusterMetadata, MovedAway, NotController
from ottla.metadata.freezable_store import FreezableStore
from ottla.metadata.leadership_lease import LeadershipLease, node_of
from ottla.metadata.policies import Policies
from ottla.metadata.registered_brokers import RegisteredBrokers, found_in
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore, SessionEvent
from ottla.metadata.store.zookeeper import ZooKeeperStore
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.schema import Message
from ottla.server.cluster_member import HAND_OVER_S, ClusterMember, Join
from ottla.server.controller_connection import ControllerConnection
from ottla.server.disk_record import DiskRecord

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper.session"
"""In the first log directory: the session of the last start, which the next one ends."""
CONTROLLED_SHUTDOWN_VERSION: Final = 3
LOOK_FOR_CONTROLLER_S: Final = 0.05
ASK_AGAIN_S: Final = 0.2
HAND_OVER_WITHOUT_SESSION_S: Final = 1.0
"""The same without a session: another broker is elected in its place, or ZooKeeper is away for all of them."""
CLOSE_CONTROLLER_S: Final = 1.5
"""How long a controller may take to finish what it is committing."""
ALONE_S: Final = 1.0
"""How long it waits for ZooKeeper's list of live brokers."""


class Membership(ClusterMember):
    """The membership of one broker. On the loop's thread."""

    coordinator = "ZooKeeper"

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        registered_brokers: RegisteredBrokers,
        replicas: "ReplicaManager",
        config: "BrokerConfig",
        clock: "Clock",
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        directories: "LogDirectories",
        disk_record: DiskRecord,
        stop_broker: Callable[[str], None],
    ) -> None:
        """`stop_broker` is called with the reason when this broker cannot go on."""
        self.metadata = metadata
        self._store = store
        super().__init__(
            metadata,
            registered_brokers,
            replicas,
            config,
            clock,
            loop,
            connect,
            directories,
            stop_broker,
            broker_epoch=lambda: metadata.broker_epoch,
            knows_settings_of=metadata.knows_settings_of,
        )
        self.controller_connection = ControllerConnection()
        self.controller_request_lock = asyncio.Lock()
        """Serializes controller requests."""
        self._controller = ClusterController(store, metadata, config, clock, loop, connect)
        metadata.subscribe(self._see_brokers)
        self._disk_record = disk_record
        self.leadership_lease: LeadershipLease = LeadershipLease(store, config.node_id, loop)
        replicas.holds_session = self.leadership_lease.holds
        metadata.create_at_controller = self.create_at_controller
        store.on_session(self._session_changed)

    # -- coming and going --------------------------------------------------------------------------------------------

    async def join(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Join the cluster; returns when the controller has sent the metadata, or takes long to.

        Raises `ApiError` DUPLICATE_BROKER_REGISTRATION, `StoreUnavailable`.
        """
        await self.metadata.register(endpoints)
        await self.registered_brokers.read()
        self.leadership_lease.start()
        self._controller.start()
        self._tasks.spawn(self._drop_out_of_sync_followers(), "checks of in-sync replicas")
        if self._disk_record.is_in_doubt:
            self._tasks.spawn(self._disk_record.trust_in_the_end(self._holds_everything), "trust in disks")
        image = self.metadata
        timeout_s = self._config.zookeeper_session_timeout_ms / 1000
        if not await image.until(lambda: image.broker_id in image.image.brokers, timeout_s):
            log.warning(
                "no controller has spoken to broker %d within %.0f s; until one does, clients are asked to come back",
                image.broker_id,
                timeout_s,
            )

    async def leave(self) -> None:
        """Withdraw, and end the session: others need not wait for what this broker still has to do."""
        await self._close_shared()
        closing = self._loop.create_task(self._controller.close())
        await asyncio.wait([closing], timeout=CLOSE_CONTROLLER_S)
        await self.registered_brokers.close()
        await self.leadership_lease.close()
        self._close_peers()
        await self.metadata.close()  # a controller that waits for ZooKeeper waits no longer
        await closing

    async def hand_over(self) -> None:
        """Have others lead what this broker leads, as far as they can: controlled shutdown.

        Where no other replica is in sync, it waits for one to come into sync, as often and as long as
        controlled.shutdown.max.retries and .retry.backoff.ms say. Without a controller it ends after `HAND_OVER_S`.
        """
        if not self._config.controlled_shutdown_enable or not self.metadata.is_registered:
            return
        timeout_s = self._hand_over_s() if self.leadership_lease.holds() else HAND_OVER_WITHOUT_SESSION_S
        try:
            async with asyncio.timeout(timeout_s):
                await self._hand_over()
        except (BrokerUnavailable, TimeoutError) as error:
            log.warning(
                "this broker stops without having handed over all that it leads: %s",
                str(error) or f"that takes more than {timeout_s:.0f} s",
            )

    async def _hand_over(self) -> None:
        retries = self._config.controlled_shutdown_max_retries
        give_up_at = self._loop.time() + HAND_OVER_S
        while not await self._is_alone():  # else there is no broker to hand over to
            request = ControlledShutdownRequest(broker_id=self._config.node_id, broker_epoch=self.metadata.broker_epoch)
            timeout_s = max(give_up_at - self._loop.time(), LOOK_FOR_CONTROLLER_S)
            answer = await self.ask_controller(request, CONTROLLED_SHUTDOWN_VERSION, timeout_s=timeout_s)
            if answer.error_code:  # it may not have seen yet that this broker is there
                if self._loop.time() >= give_up_at:
                    raise BrokerUnavailable(f"the controller answers {ErrorCode(answer.error_code).name}")
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            if not answer.remaining_partitions:
                log.info("everything that this broker led is led by others")
                return
            log.warning(
                "not everything could be handed over: %d partitions have no other replica in sync",
                len(answer.remaining_partitions),
            )
            if not retries:
                return
            retries -= 1
            await self.metadata.until(self._leads_nothing, self._config.controlled_shutdown_retry_backoff_ms / 1000)

    async def _is_alone(self) -> bool:
        """Whether no other broker is registered. The image may not know those that have just been started."""
        try:
            async with asyncio.timeout(ALONE_S):
                registered = await self._store.read(layout.BROKERS_PATH)
        except (OttlaError, TimeoutError):
            return False
        return not set(registered) - {layout.BROKERS_PATH, node_of(self._config.node_id)}

    def _leads_nothing(self) -> bool:
        """Whether others have taken over, as soon as they were in sync; or are gone."""
        image, node_id = self.metadata.image, self._config.node_id
        return image.brokers.keys() <= {node_id} or next(iter(led_by(image, node_id)), None) is None

    def _holds_everything(self) -> bool:
        """Whether it holds all replicas that it should, as far as is known, and none is still to be filled."""
        image = self.metadata.image
        return (
            not self._replicas.is_refilling
            and self._config.node_id in image.brokers
            and all(
                self._replicas.find(topic.name, part.partition) is not None
                for topic in image.topics.values()
                for part in topic.partitions
                if self._config.node_id in part.replicas and part.leader_epoch >= 0
            )
        )

    def _report_failed_directory(self) -> None:
        self.metadata.report_failed_directory()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.BEGUN:
            self._replicas.fence()

    def _see_brokers(self, old: MetadataImage, new: MetadataImage) -> None:
        """Know others before they ask: when they do, the store may be away."""
        if old.brokers != new.brokers:
            self.registered_brokers.store_changed()

    # -- others ------------------------------------------------------------------------------------------------------

    def active_controller(self) -> ActiveController:
        """What this broker does as controller. Raises `NotController`."""
        active_controller = self._controller.active_controller
        if active_controller is None or self.metadata.controller is None:
            raise NotController(f"broker {self._config.node_id} is not the controller")
        return active_controller

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float | None = None) -> Any:
        """Send a request to the current controller. Raises `BrokerUnavailable` if there is none for so long (None:
        request.timeout.ms). If the controller changes meanwhile, the request goes to the new one."""
        deadline = self._loop.time() + (timeout_s or self._config.request_timeout_ms / 1000)
        while True:
            problem: OttlaError | None = None
            try:
                answer = await self._ask_while_controller(request, version, max(deadline - self._loop.time(), 0.1))
            except BrokerUnavailable as error:
                problem = error
            else:
                if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NOT_CONTROLLER:
                    return answer
            if self._loop.time() >= deadline:
                raise BrokerUnavailable(f"no controller answers: {problem or 'it is being elected'}")
            await asyncio.sleep(LOOK_FOR_CONTROLLER_S)

    async def _ask_while_controller(self, request: Message, version: int, timeout_s: float) -> Any:
        """The answer of the controller of this moment, unless another is the controller before it answers."""
        image = self.metadata
        controller = image.image.controller_id
        asking = self._loop.create_task(self.ask(controller, request, version, timeout_s=timeout_s))
        changing = self._loop.create_task(image.until(lambda: image.image.controller_id != controller, timeout_s))
        try:
            await asyncio.wait((asking, changing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and changing.done() and changing.result():
                raise BrokerUnavailable(f"broker {controller} is not the controller any more")
            return await asking
        finally:
            asking.cancel()
            changing.cancel()


def zookeeper_store(config: "BrokerConfig", session_file: Path | None) -> MetadataStore:
    """The store that the settings name; `session_file` is as for `ZooKeeperStore`."""
    assert config.zookeeper_connect is not None
    return ZooKeeperStore(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        session_file=session_file,
        security=zookeeper_security(config),
    )


async def open_cluster(
    config: "BrokerConfig",
    clock: "Clock",
    connect: Connect,
    resolve: Resolve,
    open_store: Callable[[Path], MetadataStore] | None,
    directories: "LogDirectories",
    stack: AsyncExitStack,
    stop_broker: Callable[[str], None],
    policies: Policies,
    *,
    may_move: bool = False,
) -> tuple[ClusterMetadata, Join]:
    """Reach the store, and take the log directories for this cluster; `stack` ends the session.

    `open_store` gives another store than the one the settings name; `stop_broker` is as for `Membership`; `may_move`:
    the cluster moves to a quorum while this broker runs.

    Raises `StoreUnavailable`, and what `LogDirectories.acquire` does.
    """
    directories.lock()  # or the session that a process with the same directories has at this moment would be ended
    session_file = directories.online[0].path / SESSION_FILE
    store = open_store(session_file) if open_store is not None else zookeeper_store(config, session_file)
    if may_move:
        store = FreezableStore(store)
    metadata = ClusterMetadata(store, config, clock, policies)
    stack.push_async_callback(metadata.close)
    cluster_id = await metadata.open(directories.find_cluster_id())
    if not may_move:
        metadata.when_frozen(lambda: stop_broker(str(MovedAway())))
    directories.acquire(cluster_id=cluster_id, node_id=config.node_id, zookeeper=True)
    disk_record = DiskRecord(store, config.node_id, directories)
    await disk_record.check()
    loop = asyncio.get_running_loop()

    def join(replicas: "ReplicaManager") -> Membership:
        registered = RegisteredBrokers(
            found_in(store), resolve, config.inter_broker_peer_addresses, lambda: metadata.broker_epoch
        )
        member = Membership(
            store, metadata, registered, replicas, config, clock, loop, connect, directories, disk_record, stop_broker
        )
        if may_move:  # the quorum, which this broker may not reach, elects others that much later
            metadata.when_frozen(lambda: member.leadership_lease.end_after(lease_ms(config) / 1000))
        return member

    return metadata, join
