"""When a node takes the metadata in the quorum's log for that of its ZooKeeper, and how it notes that it has left."""

import asyncio
import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import Mock
from uuid import UUID

import pytest

from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.cluster.metadata_log.registrations import BrokerRegistration
from ottla.config.broker import BrokerConfig
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, uuid_to_text
from ottla.log.directories import LogDirectories
from ottla.log.fs import FileSystem, RealFileSystem
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, QuorumNode
from ottla.metadata.store.base import Create
from ottla.metadata.store.migration_layout import (
    MIGRATION_PATH,
    Freeze,
    announcement_path,
    read_announcements,
    read_freeze,
)
from ottla.metadata.tree_records import records_of
from ottla.records.batch import Buffer
from ottla.server import migration as module
from ottla.server.migration import Migration
from ottla.server.migration_state import LEFT, MigrationState
from ottla.testing.memory_store import MemoryStore, MemoryTree

OWN, OTHER = BrokerId(1), BrokerId(2)
CLUSTER = "a-cluster"
ANOTHER_START = UUID(int=77)


def config_of(directory: Path) -> BrokerConfig:
    return BrokerConfig(
        {
            "node.id": "1",
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "zookeeper.connect": "zk:2181",
            "zookeeper.metadata.migration.enable": "true",
            "controller.quorum.voters": "11@a:1,12@b:1",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )


class FullDisk(RealFileSystem):
    """Refuses to write some times, for lack of room."""

    left = 3

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_bytes(path, data, sync=sync)


class Node:
    """A node of the quorum, which delivers what a test gives it."""

    leader = LeaderAndEpoch(11, 3)
    high_watermark = 5

    def register(self, listener: Any) -> None:
        self._listener = listener

    def commit(self, *brokers: tuple[BrokerId, UUID]) -> None:
        """The first metadata of the log: nothing but these brokers."""
        records = records_of({}, [registered(*each) for each in brokers])
        self._listener.handle_commit(CommittedBatch(0, len(records) - 1, 1, 0, records))


class Moving(NamedTuple):
    migration: Migration
    store: MemoryStore
    node: Node
    tree: MemoryTree


def registered(broker_id: BrokerId, incarnation_id: UUID) -> BrokerRegistration:
    return BrokerRegistration(broker_id, incarnation_id, 1, (), {}, None, False, False, ())


def frozen(*brokers: tuple[BrokerId, UUID]) -> Create:
    """The freeze of a tree with these brokers."""
    known: dict[str, object] = {
        str(broker_id): {"incarnation": uuid_to_text(incarnation), "rack": None, "endpoints": {}, "protocols": {}}
        for broker_id, incarnation in brokers
    }
    return Create(MIGRATION_PATH, json.dumps({"ottla": {"cluster_id": CLUSTER, "brokers": known}}).encode())


async def opened(directory: Path, *, fs: FileSystem | None = None, has_begun: bool = False) -> Moving:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.open()
    freeze = Freeze(CLUSTER, ()) if has_begun else None
    migration, node = Migration(config_of(directory), store, CLUSTER, freeze, fs or RealFileSystem()), Node()
    migration.follow(cast(QuorumNode, node))
    return Moving(migration, store, node, tree)


async def has_moved(migration: Migration) -> bool:
    """Whether it has, once it has looked a few times."""
    waiting = asyncio.ensure_future(migration.until_moved())
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    waiting.cancel()
    return bool(done)


def image_of(*parts: PartitionImage) -> MetadataImage:
    """What the broker knows of its cluster."""
    topic = TopicImage(TopicName("t"), TopicId(UUID(int=1)), parts)
    return empty_image(CLUSTER)._replace(
        brokers={OWN: BrokerImage(OWN, 7, None, {})}, topics={topic.name: topic} if parts else {}
    )


def announce(moving: Moving, *parts: PartitionImage) -> Mock:
    """Have the broker announce that it is ready; returns its metadata, which a test may change."""
    metadata = Mock(spec=ClusterMetadata, is_registered=True, broker_epoch=7, image=image_of(*parts))
    directories = SimpleNamespace(is_in_doubt=False, all_online=True)
    moving.migration.announce(cast(QuorumNode, moving.node), metadata, cast(LogDirectories, directories))
    return metadata


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)


def test_a_broker_moves_with_the_log_that_has_its_own_registration(tmp_path: Path) -> None:
    async def main() -> None:
        moving = await opened(tmp_path)
        assert moving.migration.state is MigrationState.PRE_MIGRATION
        announce(moving)
        moving.node.commit((OWN, moving.migration.incarnation_id), (OTHER, UUID(int=2)))
        assert await has_moved(moving.migration)
        assert moving.migration.state is MigrationState.MIGRATION
        await moving.store.commit([frozen((OWN, moving.migration.incarnation_id))])
        await moving.migration.leave()
        assert moving.migration.state is MigrationState.POST_MIGRATION
        freeze = read_freeze(moving.tree.nodes)
        assert freeze is not None
        assert freeze.is_over
        await moving.migration.close()

    asyncio.run(main())


def test_the_move_waits_for_replicas_that_are_not_in_sync_yet(tmp_path: Path) -> None:
    async def main() -> None:
        moving = await opened(tmp_path)
        part = PartitionImage(PartitionId(0), OTHER, LeaderEpoch(1), (OTHER, OWN), (OTHER,), 0)
        metadata = announce(moving, part)
        path = announcement_path(OWN)

        async def until(problem: str) -> None:
            async with asyncio.timeout(20):
                while not (found := read_announcements(await moving.store.read(path))) or found[OWN].problem != problem:
                    await asyncio.sleep(0.01)

        await until("is not in sync yet with 1 partitions")
        metadata.image = image_of(part._replace(isr=(OTHER, OWN)))
        await until("")
        metadata.image = image_of(part)  # it was in sync since its start: others may come and go
        await asyncio.sleep(0.05)
        await until("")
        await moving.migration.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_broker_stays_where_it_is_if_the_log_began_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_frozen: bool
) -> None:
    """As a controller begins it that was started without the settings of the move."""

    async def main() -> None:
        moving = await opened(tmp_path)
        announce(moving)
        if is_frozen:
            await moving.store.commit([frozen((OWN, moving.migration.incarnation_id), (OTHER, UUID(int=2)))])
        moving.node.commit()
        assert not await has_moved(moving.migration)
        path = announcement_path(OWN)
        async with asyncio.timeout(20):
            while not read_announcements(await moving.store.read(path))[OWN].problem:
                await asyncio.sleep(0.01)
        await moving.migration.close()

    asyncio.run(main())
    assert "metadata that did not come from this ZooKeeper" in caplog.text


@pytest.mark.parametrize("known", [(OWN, ANOTHER_START), (OTHER, UUID(int=2))])
def test_a_node_that_starts_later_knows_the_log_by_the_brokers_of_the_freeze(
    tmp_path: Path, known: tuple[BrokerId, UUID]
) -> None:
    async def main() -> None:
        moving = await opened(tmp_path, has_begun=True)
        await moving.store.commit([frozen((OWN, UUID(int=1)), (OTHER, UUID(int=2)))])
        moving.node.commit(known)
        assert await has_moved(moving.migration)
        foreign = await opened(tmp_path, has_begun=True)
        await foreign.store.commit([frozen((OWN, UUID(int=1)), (OTHER, UUID(int=2)))])
        foreign.node.commit()
        assert not await has_moved(foreign.migration)

    asyncio.run(main())


def test_a_disk_without_room_delays_only_the_note_that_the_node_has_left(tmp_path: Path) -> None:
    async def main() -> None:
        moving = await opened(tmp_path, fs=FullDisk())
        async with asyncio.timeout(20):
            await moving.migration.leave()

    asyncio.run(main())
    assert (tmp_path / LEFT).read_text() == f"{CLUSTER}\n"
