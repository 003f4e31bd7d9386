"""Topics with thousands of partitions in a genuine ZooKeeper, which takes at most a megabyte at once."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.support.zookeeper import ZooKeeperServer

from ottla.clock import SystemClock
from ottla.cluster.commands import CreateTopic
from ottla.cluster.controller import NewTopic
from ottla.cluster.image import BrokerImage
from ottla.config import load
from ottla.ids import BrokerId, PartitionId, TopicName, TopicPartition
from ottla.metadata.service import MetadataService
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create
from ottla.metadata.store.zookeeper import ZooKeeperStore

NAME = TopicName("t" * 200)
BROKERS = {
    BrokerId(number): BrokerImage(BrokerId(number), 1, None, {"PLAINTEXT": ("h", 9000 + number)})
    for number in (1, 2, 3, 4)
}


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


def open_store(connect: str) -> ZooKeeperStore:
    return ZooKeeperStore(connect, session_timeout_ms=30_000, connection_timeout_ms=60_000)


def test_a_topic_of_thousands_of_partitions_is_made_grows_moves_and_goes(zookeeper: ZooKeeperServer) -> None:
    connect = f"{zookeeper.connect}/{uuid4()}"
    config, _ = load(None, {"zookeeper.connect": connect})

    async def scenario() -> None:
        store, other = open_store(connect), open_store(connect)
        await store.open()
        await other.open()
        try:
            await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1")])
            service = MetadataService(store, config, SystemClock())
            await service.begin_term(1, 0)
            await service.see_brokers(BROKERS)
            (made,) = await service.create_topics([NewTopic(NAME, 1600, 3)])
            assert isinstance(made, CreateTopic)
            assert await service.create_partitions([(NAME, 2200, None)]) == [None]
            moves = [(TopicPartition(NAME, PartitionId(number)), [4, 3, 2]) for number in range(2200)]
            assert set(await service.reassign(moves, allow_factor_change=False)) == {None}
            found = layout.read_image(await other.read("/")).topics[NAME]
            assert found == service.image.topics[NAME]
            assert len(found.partitions) == 2200
            assert {part.target for part in found.partitions} == {(4, 3, 2)}
            (gone,) = await service.delete_topics([NAME])
            assert gone == found
            assert not [path for path in await other.read("/") if NAME in path]
        finally:
            await store.close()
            await other.close()

    asyncio.run(scenario())
