"""The move of a cluster from ZooKeeper to its own controllers: what the active controller of the quorum does for it.

    wait     until all brokers and voters have announced that they are ready (`store.migration_layout`)
    freeze   `/migration`: from now on no broker changes the tree, and none is its controller
    read     the whole tree, as records: the first of the metadata log, in one transaction

Each step leaves the tree as the next controller can go on with it, if this one dies: what was frozen stays frozen, and
reads the same. Only once the records are committed, the log is the truth.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ottla.cluster.image import SECURITY_PROTOCOL_CODES
from ottla.cluster.metadata_log.levels import RANGES
from ottla.cluster.metadata_log.registrations import CONFIRMS_LEADERSHIP, BrokerRegistration, ListenerAddress
from ottla.errors import OttlaError
from ottla.ids import BrokerId
from ottla.metadata.quorum.node import QuorumNode
from ottla.metadata.service import WrongCluster
from ottla.metadata.store import layout, migration_layout
from ottla.metadata.store.base import MetadataStore, Node, StoreConflict
from ottla.metadata.store.migration_layout import Freeze, MovingBroker
from ottla.metadata.tree_records import messages_of
from ottla.protocol.schema import Message

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
LOG_EVERY_S: Final = 60.0
READ_AGAIN_S: Final = 30.0
"""How long after a reading of the whole tree the next one, while brokers that hold replicas do not run."""
ATTEMPTS: Final = 20
"""At the controller's seat, which brokers race for until they see the freeze."""
FIRST_EPOCH: Final = 1
"""The epochs of brokers that came from ZooKeeper begin here: below the offset of any later registration."""
OUT_OF_DATE: Final = (
    "the cluster has left ZooKeeper before, and the log of this quorum lacks its metadata: stop the controllers whose "
    "disks were replaced, and start those that have the log (what ZooKeeper has is out of date)"
)
VOTERS_STAY: Final = "the cluster moves from ZooKeeper at this moment: add the voter in a moment"


class Repeated:
    """What a loop has to say again and again: logged when it is new, and once a minute."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def is_due(self, line: str) -> bool:
        """Whether to log it now."""
        now = asyncio.get_running_loop().time()
        self._logged = {known: at for known, at in self._logged.items() if now - at < LOG_EVERY_S}
        if line in self._logged:
            return False
        self._logged[line] = now
        return True


class ZooKeeperMigration:
    """This node's part in it as a controller. On the loop's thread."""

    def __init__(self, store: MetadataStore, cluster_id: str, node: QuorumNode) -> None:
        """`store` is open; `cluster_id` is the quorum's, of which `node` is a voter."""
        self._store = store
        self._cluster_id = cluster_id
        self._node = node
        self._repeated = Repeated()
        self._absent: frozenset[BrokerId] = frozenset()
        """Brokers that held replicas and did not run when the whole tree was read last."""
        self._read_at = 0.0

    async def first_records(self, epoch: int) -> list[Message]:
        """Wait until the brokers are ready, freeze the tree, and return it as records.

        `epoch` is that of this node's term. Problems are logged, and looked at again.
        """
        while True:
            try:
                freeze = await self._frozen(epoch)
                if freeze is not None:
                    return await self._read(freeze)
            except StoreConflict as conflict:
                if self._repeated.is_due(str(conflict)):
                    log.info("%s; the move from ZooKeeper is tried again", conflict)
            except OttlaError as problem:
                self._wait_for(str(problem))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _frozen(self, epoch: int) -> Freeze | None:
        """The freeze, which this node has made if none was there; None while not everything is ready."""
        freeze = migration_layout.read_freeze(await self._store.read(migration_layout.MIGRATION_PATH))
        if freeze is None:
            nodes, missing = await self._look(epoch)
            if missing:
                self._wait_for(missing)
                return None
            await self._freeze(nodes, epoch)
            log.info("the metadata in ZooKeeper is frozen: this cluster moves to its own controllers")
            freeze = migration_layout.read_freeze(await self._store.read(migration_layout.MIGRATION_PATH))
        if freeze is not None and freeze.cluster_id != self._cluster_id:
            raise WrongCluster(self._wrong(freeze.cluster_id))
        if freeze is not None and freeze.is_over:
            raise WrongCluster(OUT_OF_DATE)
        return freeze

    async def _freeze(self, nodes: Mapping[str, Node], epoch: int) -> None:
        """Freeze the tree. Each voter has announced that it knows of the move, and no other one comes meanwhile."""
        voters = self._node.voter_ids
        self._node.voters_stay = VOTERS_STAY
        try:
            await self._store.commit(migration_layout.freeze_operations(nodes, self._node.node_id, epoch, voters))
        except StoreConflict:
            self._node.voters_stay = ""
            raise

    async def _look(self, epoch: int) -> tuple[Mapping[str, Node], str]:
        """The whole tree once everything is ready; until then, what has to happen first.

        As long as that can be seen from the registrations, nothing else is read.
        """
        nodes: dict[str, Node] = {}
        for path in (
            layout.BROKERS_PATH,
            migration_layout.ANNOUNCEMENTS_PATH,
            layout.CLUSTER_ID_PATH,
            layout.CONTROLLER_EPOCH_PATH,
        ):
            nodes |= await self._store.read(path)
        missing = self._missing(nodes, epoch)
        now = asyncio.get_running_loop().time()
        if not missing and now - self._read_at < READ_AGAIN_S:
            absent = self._absent - layout.read_image(nodes).brokers.keys()
            missing = _sentence(dict.fromkeys(sorted(absent), migration_layout.DOES_NOT_RUN))
        if not missing:
            nodes = await self._store.read("/")
            missing = self._missing(nodes, epoch)
            image = layout.read_image(nodes)
            self._absent, self._read_at = migration_layout.holders(image) - image.brokers.keys(), now
        return nodes, missing

    def _missing(self, nodes: Mapping[str, Node], epoch: int) -> str:
        """What has to happen before the freeze, as the end of a sentence; empty if nothing has."""
        image = layout.read_image(nodes)
        if image.cluster_id != self._cluster_id:
            raise WrongCluster(self._wrong(image.cluster_id))
        if layout.CONTROLLER_EPOCH_PATH not in nodes:
            return "none of its brokers has been the controller yet"
        leader = self._node.node_id, epoch
        voters = migration_layout.unready_controllers(self._node.voter_ids, nodes, leader)
        unready = migration_layout.unready(image, migration_layout.read_announcements(nodes), leader)
        return "; ".join(filter(None, (_sentence(unready), _sentence(voters, "controller"))))

    def _wrong(self, found: str) -> str:
        return (
            f"the controllers were formatted for cluster {self._cluster_id}, and ZooKeeper has "
            f"{f'cluster {found}' if found else 'none'}: format them with that id, or correct zookeeper.connect"
        )

    async def _read(self, freeze: Freeze) -> list[Message]:
        self._node.voters_stay = VOTERS_STAY
        self._node.remark = "moves from ZooKeeper: the metadata is frozen, and is copied to the log of the quorum"
        await self._close_seat()
        nodes = await self._store.read("/")
        log.info("the frozen metadata is read from ZooKeeper: %d nodes", len(nodes))
        brokers = list(map(_registration, freeze.brokers, range(FIRST_EPOCH, 1 << 31)))
        # In a thread: with many partitions it takes longer than the other controllers wait for this one.
        return await asyncio.get_running_loop().run_in_executor(None, messages_of, nodes, brokers)

    async def _close_seat(self) -> None:
        """See that no broker is or becomes the controller. Raises `StoreConflict` if some broker is always quicker."""
        for attempt in range(1, ATTEMPTS + 1):
            nodes = await self._store.read(layout.CONTROLLER_PATH)
            nodes |= await self._store.read(layout.CONTROLLER_EPOCH_PATH)
            if migration_layout.is_seat_closed(nodes):
                return
            operations = migration_layout.vacate_operations(nodes) or migration_layout.close_operations(nodes)
            try:
                await self._store.commit(operations)
            except StoreConflict:
                if attempt == ATTEMPTS:
                    raise

    def _wait_for(self, reason: str) -> None:
        """Show the reason, and log it, unless it was logged a short time ago."""
        self._node.remark = f"moves from ZooKeeper: waits, since {reason}"
        if self._repeated.is_due(reason):
            log.warning("the move from ZooKeeper waits: %s", reason)


def _sentence(unready: Mapping[int, str] | Mapping[BrokerId, str], kind: str = "broker") -> str:
    return "; ".join(f"{kind} {node_id} {why}" for node_id, why in unready.items())


def _registration(moving: MovingBroker, epoch: int) -> BrokerRegistration:
    """A broker's registration with the quorum, under which it goes on to lead until its own comes."""
    broker = moving.broker
    return BrokerRegistration(
        broker_id=broker.broker_id,
        incarnation_id=moving.incarnation_id,
        epoch=epoch,
        listeners=tuple(
            ListenerAddress(
                name, host, port, SECURITY_PROTOCOL_CODES[broker.security_protocols.get(name, layout.PLAINTEXT)]
            )
            for name, (host, port) in broker.endpoints.items()
        ),
        features={**RANGES, CONFIRMS_LEADERSHIP: (0, 1)},
        rack=broker.rack,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(),  # it reports where its replicas are once it has moved
    )
