"""The move of a tree into the log: it waits, freezes, reads, and goes on where a controller before has died."""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest
from tests.support.quorum_brokers import CLUSTER_ID, ControllerAlone, FakeBroker, registration, run

from ottla.cluster.commands import Command, CreateTopic, RegisterBroker, SetConfigs, SetController
from ottla.cluster.image import NOT_YET_LED, BrokerImage, PartitionImage, ResourceType, TopicImage, empty_image
from ottla.cluster.metadata_log.partitions import MIGRATING
from ottla.cluster.metadata_log.state import ClusterState
from ottla.errors import ApiError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.metadata import zookeeper_migration
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Delete, Node, Operation, StoreUnavailable, Update
from ottla.metadata.store.migration_layout import (
    MIGRATION_PATH,
    Announcement,
    announcement_node,
    announcement_path,
    controller_node,
    controller_path,
    is_seat_closed,
    moved_operations,
)
from ottla.metadata.zookeeper_migration import Repeated, ZooKeeperMigration
from ottla.protocol.schema import Message
from ottla.testing.memory_quorum import MemoryQuorum
from ottla.testing.memory_store import MemoryStore, MemoryTree

ONE, TWO = BrokerId(1), BrokerId(2)
CLUSTER = CLUSTER_ID
PART = PartitionImage(PartitionId(0), TWO, LeaderEpoch(7), (ONE, TWO), (TWO, ONE), 0)
WAITING = PartitionImage(PartitionId(1), BrokerId(-1), LeaderEpoch(-1), (TWO, ONE), (), NOT_YET_LED)
TOPIC = TopicImage(TopicName("t"), TopicId(UUID(int=1)), (PART, WAITING))


def incarnation(broker_id: int) -> UUID:
    return UUID(int=500 + broker_id)


class Dying(MemoryStore):
    """Its process dies at the n-th commit, before or after that is carried out."""

    def __init__(self, tree: MemoryTree, at: int, *, after: bool) -> None:
        super().__init__(tree)
        self._left, self._after = at, after

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._left -= 1
        if self._left == 0:
            if self._after:
                await super().commit(operations)
            raise asyncio.CancelledError
        await super().commit(operations)


class Counting(MemoryStore):
    """Counts the readings of the whole tree."""

    whole = 0

    async def read(self, prefix: str) -> dict[str, Node]:
        self.whole += prefix == "/"
        return await super().read(prefix)


def voter(node_id: int) -> MemoryQuorum:
    """One of two controllers."""
    node = MemoryQuorum(node_id)
    node.voter_ids = (8, 9)
    return node


async def opened(tree: MemoryTree, make: Callable[[MemoryTree], MemoryStore] = MemoryStore) -> MemoryStore:
    store = make(tree)
    await store.open()
    return store


async def on_zookeeper(
    tree: MemoryTree,
    *,
    ready: Sequence[BrokerId] = (ONE, TWO),
    leader: tuple[int, int] = (9, 4),
    voters: Sequence[int] = (8, 9),
) -> list[MemoryStore]:
    """The sessions of two brokers, the first of which is the controller, and of the controllers of the quorum."""
    first = await opened(tree)
    commands: list[Command] = [
        CreateTopic(TOPIC, {"retention.ms": "1"}),
        SetConfigs(ResourceType.USER, "alice", {"producer_byte_rate": "5"}),
        SetController(ONE),
    ]
    operations = layout.operations_for(commands, empty_image(CLUSTER), {}, controller_epoch=3, now_ms=0)
    await first.commit([Create(layout.CLUSTER_ID_PATH, layout.cluster_id_node(CLUSTER)), *operations])
    sessions = []
    for broker_id in (ONE, TWO):
        session = first if broker_id == ONE else await opened(tree)
        broker = BrokerImage(broker_id, -1, f"r{broker_id}", {"PLAINTEXT": ("h", 9000 + broker_id)}, True)
        await session.commit(
            layout.operations_for([RegisterBroker(broker)], empty_image(CLUSTER), {}, controller_epoch=0, now_ms=0)
        )
        if broker_id in ready:
            await announce(session, broker_id, leader)
        sessions.append(session)
    controllers = await opened(tree)
    for voter_id in voters:
        await controllers.commit([Create(controller_path(voter_id), controller_node(leader), True)])
    return [*sessions, controllers]


async def announce(session: MemoryStore, broker_id: BrokerId, leader: tuple[int, int] = (9, 4)) -> None:
    path = f"{layout.BROKERS_PATH}/{broker_id}"
    epoch = (await session.read(path))[path].created
    ready = Announcement(epoch, incarnation(broker_id), leader)
    await session.commit([Create(announcement_path(broker_id), announcement_node(ready), True)])


def check(tree: MemoryTree, records: Sequence[Message]) -> None:
    """All of it is there, and the brokers lead what they have led."""
    assert is_seat_closed(tree.nodes)
    state = ClusterState(CLUSTER)
    for record in records:
        state.take(record)
    image = state.image()
    led, waiting = image.topics[TOPIC.name].partitions
    assert led == PART
    assert (waiting.leader, waiting.leader_epoch, waiting.isr) == (-1, 0, (TWO, ONE))
    assert image.configs[ResourceType.USER, "alice"] == {"producer_byte_rate": "5"}
    assert {number: each.incarnation_id for number, each in state.brokers.items()} == {
        number: incarnation(number) for number in (1, 2)
    }
    assert {each.broker_id: (each.rack, each.endpoints["PLAINTEXT"][1]) for each in image.brokers.values()} == {
        ONE: ("r1", 9001),
        TWO: ("r2", 9002),
    }
    assert set(state.topics.states[TOPIC.topic_id].partitions[PartitionId(0)].directories) == {MIGRATING}


def test_the_tree_is_frozen_and_read_once_the_last_broker_is_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.01)

    async def main() -> None:
        tree = MemoryTree()
        _, second, _ = await on_zookeeper(tree, ready=[ONE])
        moving = asyncio.ensure_future(ZooKeeperMigration(await opened(tree), CLUSTER, voter(9)).first_records(4))
        async with asyncio.timeout(20):
            while "broker 2 was started without the settings of the quorum" not in caplog.text:
                await asyncio.sleep(0.01)
            assert MIGRATION_PATH not in tree.nodes
            await announce(second, TWO)
            check(tree, await moving)

    asyncio.run(main())


def test_each_voter_has_to_know_of_the_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not would begin a cluster without topics, should it lead between the freeze and the move."""
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.01)

    async def main() -> None:
        tree, node = MemoryTree(), voter(9)
        *_, controllers = await on_zookeeper(tree, voters=[9])
        moving = asyncio.ensure_future(ZooKeeperMigration(await opened(tree), CLUSTER, node).first_records(4))
        async with asyncio.timeout(20):
            while "controller 8 does not run, or was started without" not in node.remark:
                await asyncio.sleep(0.01)
            await controllers.commit([Create(controller_path(8), controller_node((8, 3)), True)])
            while "controller 8 follows controller 8, in epoch 3" not in node.remark:
                await asyncio.sleep(0.01)
            assert MIGRATION_PATH not in tree.nodes
            assert not node.voters_stay
            await controllers.commit([Update(controller_path(8), controller_node((9, 4)), 0)])
            check(tree, await moving)
        assert node.voters_stay
        assert "is frozen" in node.remark

    asyncio.run(main())


@pytest.mark.parametrize(("ready", "runs", "most"), [([ONE], True, 0), ([ONE], False, 1)])
def test_the_whole_tree_is_not_read_while_a_broker_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, ready: list[BrokerId], runs: bool, most: int
) -> None:
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.001)

    async def main() -> None:
        tree, node = MemoryTree(), voter(9)
        _, second, _ = await on_zookeeper(tree, ready=ready)
        if not runs:
            second.expire()
        store = Counting(tree)
        await store.open()
        moving = asyncio.ensure_future(ZooKeeperMigration(store, CLUSTER, node).first_records(4))
        async with asyncio.timeout(20):
            while "broker 2" not in node.remark:
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0.001)
        assert store.whole == most
        moving.cancel()

    asyncio.run(main())


def test_what_is_repeated_is_logged_once_a_minute() -> None:
    async def main() -> None:
        repeated = Repeated()
        assert [line for line in ["a", "b"] * 100 if repeated.is_due(line)] == ["a", "b"]

    asyncio.run(main())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_another_controller_goes_on_where_one_has_died(at: int, after: bool) -> None:
    async def main() -> None:
        tree = MemoryTree()
        sessions = await on_zookeeper(tree)
        dying = await opened(tree, lambda tree: Dying(tree, at, after=after))
        with pytest.raises(asyncio.CancelledError):
            await ZooKeeperMigration(dying, CLUSTER, voter(9)).first_records(4)
        if MIGRATION_PATH in tree.nodes:  # brokers that have ended since are in the freeze
            sessions[1].expire()
        else:  # they follow the new controller
            for session, broker_id in zip(sessions, (ONE, TWO), strict=False):
                await session.commit([Delete(announcement_path(broker_id), 0)])
                await announce(session, broker_id, (8, 5))
            for voter_id in (8, 9):
                await sessions[2].commit([Update(controller_path(voter_id), controller_node((8, 5)), 0)])
        check(tree, await ZooKeeperMigration(await opened(tree), CLUSTER, voter(8)).first_records(5))

    asyncio.run(main())


def test_controllers_of_another_cluster_freeze_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.01)

    async def main() -> None:
        tree = MemoryTree()
        await on_zookeeper(tree)
        moving = asyncio.ensure_future(ZooKeeperMigration(await opened(tree), "other", voter(9)).first_records(4))
        async with asyncio.timeout(20):
            while f"formatted for cluster other, and ZooKeeper has cluster {CLUSTER}" not in caplog.text:
                await asyncio.sleep(0.01)
        moving.cancel()
        assert MIGRATION_PATH not in tree.nodes

    asyncio.run(main())


def test_controllers_on_empty_disks_do_not_take_over_what_the_cluster_has_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.01)

    async def main() -> None:
        tree = MemoryTree()
        sessions = await on_zookeeper(tree)
        await ZooKeeperMigration(await opened(tree), CLUSTER, voter(9)).first_records(4)
        operations = moved_operations(tree.nodes, 17, 4)
        await sessions[0].commit(operations)
        assert moved_operations(tree.nodes, 18, 4) == []
        again = asyncio.ensure_future(ZooKeeperMigration(await opened(tree), CLUSTER, voter(8)).first_records(5))
        async with asyncio.timeout(20):
            while "the cluster has left ZooKeeper before" not in caplog.text:
                await asyncio.sleep(0.01)
        assert not again.done()
        again.cancel()

    asyncio.run(main())


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_migration, "LOOK_EVERY_S", 0.01)

    class Away(MemoryStore):
        failures = 3

        async def commit(self, operations: Sequence[Operation]) -> None:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("it is away")
            await super().commit(operations)

    async def main() -> None:
        tree = MemoryTree()
        await on_zookeeper(tree)
        check(tree, await ZooKeeperMigration(await opened(tree, Away), CLUSTER, voter(9)).first_records(4))

    asyncio.run(main())


async def take_over(epoch: int) -> list[Message]:
    """A tree with two brokers that are ready."""
    tree = MemoryTree()
    await on_zookeeper(tree, leader=(9, epoch))
    return await ZooKeeperMigration(await opened(tree), CLUSTER, voter(9)).first_records(epoch)


def test_brokers_go_on_to_lead_if_they_come_within_their_session() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        def led() -> PartitionImage:
            return alone.controller.image.topics[TOPIC.name].partitions[0]

        assert set(alone.controller.image.brokers) == {ONE, TWO}
        assert (led().leader, led().leader_epoch) == (TWO, 7)
        with pytest.raises(ApiError):  # another process, which may have lost what the first had
            await alone.controller.register_broker(registration(TWO))
        moved = await FakeBroker(alone, ONE).start(incarnation_id=incarnation(ONE), log_dirs=[UUID(int=601)])
        assert moved.epoch == 1
        await asyncio.sleep(8)
        assert (led().leader, led().leader_epoch) == (TWO, 7)
        await asyncio.sleep(2)  # broker 2 has not come
        assert set(alone.controller.image.brokers) == {ONE}
        assert (led().leader, led().leader_epoch, led().isr) == (ONE, 8, (ONE,))

    run(scenario, take_over=take_over)


def test_heartbeats_count_before_the_registration() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        opening = FakeBroker(alone, ONE)
        opening.epoch = 1
        for _ in range(20):
            assert not (await opening.beat()).is_fenced
            await asyncio.sleep(1)
        assert set(alone.controller.image.brokers) == {ONE}

    run(scenario, take_over=take_over)


def test_what_has_been_taken_over_is_not_taken_over_again() -> None:
    async def scenario(alone: ControllerAlone) -> None:
        alone.node.resign(alone.node.leader.epoch)
        await alone.until(lambda: not alone.controller.is_active)
        await alone.until(lambda: alone.controller.is_active)
        records = [record for batch in alone.node.batches for record in batch.records]
        assert sum(b"metadata.version" in record for record in records) == 1 + len(alone.controller.image.brokers)

    run(scenario, take_over=take_over)
