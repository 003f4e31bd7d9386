"""A node's part in the move of its cluster from ZooKeeper to a quorum of controllers, from its start to the switch.

    on ZooKeeper   it serves as any broker, runs or follows a node of the quorum beside, and announces that it is ready
    moved          the log has the metadata: the broker goes on under the quorum (`migration_switch`)
    later starts   `zookeeper.left` in the metadata directory: ZooKeeper is no longer needed

A start between the freeze and the move goes under the quorum, too, and waits there for the metadata.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from ottla.cluster.image import NO_LEADER
from ottla.cluster.metadata_log.state import ClusterState
from ottla.config.quorum import SWITCH
from ottla.errors import OttlaError, sentence
from ottla.ids import BrokerId
from ottla.log.fs import FileSystem, replace_atomically
from ottla.log.meta_properties import directory_uuid, leave_zookeeper
from ottla.metadata.broker_lifecycle import UNKNOWN_EPOCH
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch, QuorumNode
from ottla.metadata.service import WrongCluster
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, MetadataStore, StoreConflict, StoreUnavailable, Update
from ottla.metadata.store.migration_layout import (
    MIGRATION_PATH,
    Announcement,
    Freeze,
    announcement_node,
    announcement_path,
    controller_node,
    controller_path,
    moved_operations,
    read_freeze,
)
from ottla.metadata.zookeeper_migration import Repeated, ZooKeeperMigration
from ottla.protocol import metadata_records
from ottla.protocol.metadata_records import RECORD_TYPES, read_frame
from ottla.protocol.schema import Message
from ottla.server.membership import zookeeper_store
from ottla.server.migration_state import LEFT, MigrationState, in_metadata_directory
from ottla.server.quorum_opening import metadata_directory, opens_observers
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.metadata.view import MetadataView

log = logging.getLogger(__name__)

COMING_S: Final = 60.0
"""How long the move waits for the replicas of a broker that has just been started."""
LOOK_EVERY_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
REMOVE: Final = f"remove zookeeper.connect and {SWITCH} from this node's settings before its next start"
REMOVE_ANYWHERE: Final = f"restart the nodes, one after another, without zookeeper.connect and {SWITCH}"


_NEEDED: Final = frozenset(
    {
        metadata_records.FeatureLevelRecord,
        metadata_records.RegisterBrokerRecord,
        metadata_records.BeginTransactionRecord,
        metadata_records.EndTransactionRecord,
        metadata_records.AbortTransactionRecord,
    }
)
"""What an arrival is seen by. All other nodes of the process read everything at the same time."""


class _Arrival:
    """A `Listener` that waits for the first metadata in the log of the quorum."""

    def __init__(self, arrived: Callable[[ClusterState], None]) -> None:
        self._arrived: Callable[[ClusterState], None] | None = arrived
        self._state = ClusterState()

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """See whether there is metadata in a snapshot."""
        if self._arrived is not None:
            self._state = ClusterState()
            self._take(records)

    def handle_commit(self, batch: CommittedBatch) -> None:
        """See whether there is metadata by now."""
        if self._arrived is not None:
            self._take(batch.records)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The leader does not matter here."""

    def _take(self, records: Iterable[bytes]) -> None:
        try:
            self._state.replay_all(record for record in records if RECORD_TYPES.get(read_frame(record).type) in _NEEDED)
        except OttlaError as problem:
            log.error("the log of the quorum cannot be followed, and this node does not move: %s", sentence(problem))
            self._arrived = None
        if self._state.metadata_version and self._arrived is not None:
            self._arrived(self._state)
            self._arrived = None
            self._state = ClusterState()  # nothing is kept twice


class Migration:
    """The move, seen from one node. On the loop's thread."""

    def __init__(
        self, config: "BrokerConfig", store: MetadataStore, cluster_id: str, freeze: Freeze | None, fs: FileSystem
    ) -> None:
        """`store` is a session of its own, and open; `freeze` is the one that is in it by now."""
        self.cluster_id = cluster_id
        """That of ZooKeeper."""
        self.has_begun = freeze is not None
        """Whether the metadata has been frozen before this start: this node begins under the quorum."""
        self.incarnation_id = uuid4()
        """With which the broker registers after the switch."""
        self.broker_epoch = UNKNOWN_EPOCH
        """In which it is registered until then, once the log has the metadata."""
        self._registered: dict[BrokerId, UUID] = {}
        """The brokers in the first metadata of the log, and their incarnations."""
        self._is_announced = False
        """Whether its broker serves on ZooKeeper, and is in a freeze that comes now."""
        self._has_moved = False
        self._node: QuorumNode | None = None
        self._problem = ""
        """Why it does not move, as in an announcement."""
        self._config = config
        self._store = store
        self._fs = fs
        self._repeated = Repeated()
        self._is_open = True
        self._arrived = asyncio.Event()
        self._tasks = Tasks()

    @property
    def id_of_new_directory(self) -> str | None:
        """The cluster for which a controller's directory may be formatted by its start; None once the log may have
        metadata, which such a directory has lost."""
        return None if self.has_begun else self.cluster_id

    @property
    def state(self) -> MigrationState:
        """How far this node is."""
        if self._has_moved:
            return MigrationState.MIGRATION if self._is_open else MigrationState.POST_MIGRATION
        moves = self.has_begun or self._arrived.is_set()
        return MigrationState.MIGRATION if moves else MigrationState.PRE_MIGRATION

    def takes_over(self, cluster_id: str) -> Callable[[QuorumNode], Callable[[int], Awaitable[Sequence[Message]]]]:
        """How the controller of this node, which is of that cluster, takes the metadata over."""
        return lambda node: ZooKeeperMigration(self._store, cluster_id, node).first_records

    def announce_controller(self, node: QuorumNode) -> None:
        """Announce from now on that this controller waits for the metadata; its disk knows that, too
        (`migration_state.WAITING`)."""

        def wanted() -> bytes:
            return controller_node(_leader(node))

        path = controller_path(self._config.node_id)
        self._tasks.spawn(self._keep_announced(path, wanted), "announcement of a controller that waits")

    def follow(self, node: QuorumNode) -> None:
        """Look for the metadata in the log."""
        self._node = node
        node.register(_Arrival(self._take_first))

    def _take_first(self, state: ClusterState) -> None:
        own = state.brokers.get(BrokerId(self._config.node_id))
        self.broker_epoch = UNKNOWN_EPOCH if own is None else own.epoch
        self._registered = {each.broker_id: each.incarnation_id for each in state.brokers.values()}
        self._arrived.set()

    def announce(self, node: QuorumNode, metadata: "MetadataView", directories: "LogDirectories") -> None:
        """Announce from now on whether this broker is ready, whenever it is registered."""
        assert isinstance(metadata, ClusterMetadata)
        self._is_announced = True
        node_id = BrokerId(self._config.node_id)
        coming = _Coming(metadata, node_id)

        def wanted() -> bytes | None:
            if not metadata.is_registered:
                return None
            problem = self._problem or _problem(node, directories) or coming.problem()
            return announcement_node(Announcement(metadata.broker_epoch, self.incarnation_id, _leader(node), problem))

        self._tasks.spawn(self._keep_announced(announcement_path(node_id), wanted), "announcement of the move")

    async def _keep_announced(self, path: str, wanted: Callable[[], bytes | None]) -> None:
        repeated = Repeated()
        while not self._has_moved:
            data = wanted()
            if data is not None:
                try:
                    known = (await self._store.read(path)).get(path)
                    if known is None or not known.is_own:  # that of a process before goes with its session
                        await self._store.commit([Create(path, data, session_bound=True)])
                    elif known.data != data:
                        await self._store.commit([Update(path, data, known.version)])
                except OttlaError as refused:
                    if repeated.is_due(str(refused)):
                        log.info("%s; the announcement of the move is made again", refused)
            await asyncio.sleep(LOOK_EVERY_S)

    async def until_moved(self) -> None:
        """Wait until the log has the metadata of ZooKeeper. Other metadata is reported, and moves nothing."""
        await self._arrived.wait()
        pause_s = LOOK_EVERY_S
        while not await self._is_moved():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._has_moved = True
        assert self._node is not None
        self._node.voters_stay = ""
        self._node.remark = f"has moved from ZooKeeper: {REMOVE_ANYWHERE}"

    async def _is_moved(self) -> bool:
        """Whether the log's metadata came from this ZooKeeper.

        A controller that was started without the settings of the move begins a cluster without topics.
        """
        own = BrokerId(self._config.node_id)
        if self._registered.get(own) == self.incarnation_id:
            return True  # which only the freeze has named
        try:
            freeze = read_freeze(await self._store.read(MIGRATION_PATH))
        except StoreUnavailable as problem:
            if self._repeated.is_due(str(problem)):
                log.warning("%s; the move waits for it", problem)
            return False
        if freeze is not None and freeze.cluster_id == self.cluster_id:
            frozen = {each.broker.broker_id for each in freeze.brokers}
            if not frozen or (not (self._is_announced and own in frozen) and not frozen.isdisjoint(self._registered)):
                return True
        self._problem = "follows controllers whose metadata did not come from this ZooKeeper"
        if self._repeated.is_due(self._problem):
            log.error(
                "the quorum's log has metadata that did not come from this ZooKeeper, and this node does not move: its "
                "controllers were used before, or one was started without %s; stop them, and format them anew",
                SWITCH,
            )
        return False

    def leave_when_moved(self, node: QuorumNode, failed: Callable[[str], None]) -> None:
        """Have a controller without a broker leave ZooKeeper for good, once the log has the metadata."""

        async def follow() -> None:
            try:
                await self.until_moved()
                await self.leave()
            except OttlaError as problem:
                failed(sentence(problem))
            except Exception as defect:
                log.exception("this controller cannot follow the move from ZooKeeper")
                failed(f"this controller cannot follow the move from ZooKeeper: {defect!r}")

        self.follow(node)
        self._tasks.spawn(follow(), "move from ZooKeeper")

    async def leave(self) -> None:
        """Note that this node has left ZooKeeper for good, as soon as its disk takes that, and end its session."""
        for path in {*self._config.log_dirs, self._config.metadata_log_dir or self._config.log_dirs[0]}:
            try:
                leave_zookeeper(self._fs, str(path))
            except OSError as problem:  # a failed directory, which is not asked for it either
                log.warning("%s stays marked as that of a broker with ZooKeeper: %s", path, sentence(problem))
        await self._note_in_zookeeper()
        pause_s = LOOK_EVERY_S
        while not self._is_left():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        await self._close_store()
        log.warning("this node has left ZooKeeper, and does not need it any longer: %s", REMOVE)

    async def _note_in_zookeeper(self) -> None:
        """Note in the freeze that the log has the metadata: controllers on empty disks must not take it over again."""
        assert self._node is not None
        last = max(0, (self._node.high_watermark or 0) - 1)
        try:
            nodes = await self._store.read(MIGRATION_PATH)
            operations = moved_operations(nodes, last, self._node.leader.epoch)
            if operations:
                await self._store.commit(operations)
        except StoreConflict:  # another node has noted it
            return
        except OttlaError as problem:
            log.warning("%s; that the cluster has moved is not noted in ZooKeeper by this node", sentence(problem))

    def _is_left(self) -> bool:
        """Whether the next start will know that this node has left."""
        try:
            replace_atomically(self._fs, in_metadata_directory(self._config, LEFT), f"{self.cluster_id}\n".encode())
        except OSError as problem:
            log.error("this node has moved, and cannot note that yet: %s", sentence(problem))
            return False
        return True

    async def close(self) -> None:
        """End the session with ZooKeeper."""
        await self._tasks.close()
        await self._close_store()

    async def _close_store(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._store.close()


def _problem(node: QuorumNode, directories: "LogDirectories") -> str:
    """What keeps this broker from moving; empty if nothing does.

    Under the quorum, it could not tell replicas that were on a lost disk from those that it never had.
    """
    if node.leader.leader_id is None or node.high_watermark is None:
        return "reaches no active controller of the quorum"
    if directories.is_in_doubt or not directories.all_online:
        return "has a log directory that has failed, or whose replicas are not filled again yet"
    return ""


class _Coming:
    """Whether the replicas of a broker that has just been started are in sync again: a broker that is restarted during
    the move would lack them, and the others have enough to do at that moment."""

    def __init__(self, metadata: ClusterMetadata, node_id: BrokerId) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._has_come = False
        self._until = asyncio.get_running_loop().time() + COMING_S

    def problem(self) -> str:
        """What is missing, as in an announcement; empty once all were in sync, or after `COMING_S`."""
        if self._has_come:
            return ""
        image, own = self._metadata.image, self._node_id
        missing = sum(
            own in part.replicas and own not in part.isr for topic in image.topics.values() for part in topic.partitions
        )
        waits = own not in image.brokers or missing > 0
        if not waits or asyncio.get_running_loop().time() >= self._until:
            self._has_come = True
            return ""
        return f"is not in sync yet with {missing} partitions" if missing else "knows no controller yet"


def _leader(node: QuorumNode) -> tuple[int, int]:
    leader_id, epoch = node.leader
    return NO_LEADER if leader_id is None else leader_id, epoch


def has_left(config: "BrokerConfig", fs: FileSystem) -> bool:
    """Whether this node has left ZooKeeper, though its settings still name it."""
    left = fs.exists(in_metadata_directory(config, LEFT))
    if left:
        log.warning("this node has left ZooKeeper, which zookeeper.connect still names: %s", REMOVE)
    return left


async def open_migration(
    config: "BrokerConfig",
    open_store: Callable[[Path], MetadataStore] | None,
    fs: FileSystem,
    stack: AsyncExitStack,
) -> Migration:
    """Reach ZooKeeper; `stack` leaves it.

    Raises `StoreUnavailable`, `MalformedNode`, `WrongCluster` where ZooKeeper has no cluster.
    """
    own_file = Path(in_metadata_directory(config, LEFT))
    store = open_store(own_file) if open_store is not None else zookeeper_store(config, None)
    try:
        await store.open()
        nodes = await store.read(layout.CLUSTER_ID_PATH)
        if not nodes:
            raise WrongCluster(
                f"{SWITCH}: ZooKeeper at {config.zookeeper_connect} has no cluster that could move; start the brokers "
                "without this setting first, or begin with controllers instead (without zookeeper.connect)"
            )
        cluster_id = layout.read_cluster_id(nodes[layout.CLUSTER_ID_PATH])
        freeze = read_freeze(await store.read(MIGRATION_PATH))
    except OttlaError as problem:
        await store.close()
        if isinstance(problem, StoreUnavailable):
            raise StoreUnavailable(f"{problem}; if the cluster has left ZooKeeper meanwhile, {REMOVE}") from problem
        raise
    migration = Migration(config, store, cluster_id, freeze, fs)
    stack.push_async_callback(migration.close)
    return migration


async def open_observer(
    config: "BrokerConfig",
    cluster_id: str,
    directories: "LogDirectories",
    connect: "Connect",
    stack: AsyncExitStack,
    failed: Callable[[str], None],
) -> QuorumNode:
    """The node with which a broker that is no controller follows the log of the quorum; `stack` closes it.

    Raises as `LogDirectories.acquire`.
    """
    directories.lock()
    directories.acquire(cluster_id=cluster_id, node_id=config.node_id, zookeeper=True)
    directory = directories.of_metadata = metadata_directory(config, directories, cluster_id)
    directory_id = directory_uuid(directory.directory_id)
    open_node = opens_observers(directories.fs, directories.clock)
    node = open_node(config, cluster_id, directory_id, connect, failed)
    await node.start()
    stack.push_async_callback(node.close)
    return node
