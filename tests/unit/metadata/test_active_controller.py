"""A controller whose store fails for a while, or that has been replaced."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast
from unittest.mock import Mock
from uuid import UUID

import pytest
from tests.unit.cluster.images import cluster, partition

from ottla.clock import SystemClock
from ottla.cluster.commands import Command, CreateTopic, RegisterBroker
from ottla.cluster.controller_requests import LACKS_ROOM, Sender, probe_requests
from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicId, TopicName
from ottla.metadata import active_controller as active_controllers
from ottla.metadata.active_controller import ActiveController
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, StoreConflict, StoreUnavailable
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from ottla.testing.memory_store import MemoryStore, MemoryTree


def decide_after(problems: list[OttlaError], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens when decisions fail with these problems, one after the other."""
    happened: list[str] = []

    async def main() -> None:
        controller = ActiveController(
            MemoryStore(MemoryTree()),
            BrokerConfig({}),
            SystemClock(),
            asyncio.get_running_loop(),
            cast(Any, None),
            1,
            lambda: happened.append("deposed"),
        )

        async def decide(plan: Callable[[MetadataImage], Sequence[Command]]) -> None:
            if problems:
                happened.append("failed")
                raise problems.pop(0)
            happened.append("decided")

        async def reassign(*args: object, **options: object) -> list[OttlaError | None]:
            return []

        monkeypatch.setattr(controller.service, "decide", decide)
        monkeypatch.setattr(controller.service, "reassign", reassign)
        await controller.reassign([])
        async with asyncio.timeout(20):
            while happened[-1] == "failed":
                await asyncio.sleep(0.001)
        await controller.end()

    monkeypatch.setattr(active_controllers, "RETRY_S", 0.001)
    asyncio.run(main())
    return happened


def test_what_could_not_be_decided_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[OttlaError] = [StoreUnavailable("away"), StoreConflict("/brokers/topics/t", "is there already")]
    assert decide_after(problems, monkeypatch) == ["failed", "failed", "decided", "decided"]


def test_a_controller_of_the_past_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[OttlaError] = [StoreConflict(layout.CONTROLLER_EPOCH_PATH, "is not there in version 1")]
    assert decide_after(later, monkeypatch) == ["failed", "deposed"]


@pytest.mark.parametrize("epoch", [-1, 3, 5])
def test_only_the_process_that_was_elected_confirms_that_it_leads(epoch: int) -> None:
    async def main() -> None:
        store, loop = MemoryStore(MemoryTree()), asyncio.get_running_loop()
        controller = ActiveController(store, BrokerConfig({}), SystemClock(), loop, cast(Any, None), 1, Mock())
        brokers = cluster(2).brokers
        controller.service._image = controller.image._replace(
            brokers={BrokerId(2): brokers[BrokerId(2)]._replace(epoch=4)}
        )
        assert await controller.change_in_sync(BrokerId(2), 4, []) == []
        with pytest.raises(ApiError) as refused:
            await controller.change_in_sync(BrokerId(2), epoch, [])
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

    asyncio.run(main())


def test_a_partition_gets_a_leader_and_the_end_of_its_move_at_once() -> None:
    """Its leader dies when the new replica has just caught up."""
    image = cluster(2)
    moving = partition(0, 1, (2, 1))._replace(adding=(BrokerId(2),), removing=(BrokerId(1),))
    commands: list[Command] = [
        RegisterBroker(image.brokers[BrokerId(2)]._replace(endpoints={})),
        CreateTopic(TopicImage(TopicName("t"), TopicId(UUID(int=7)), (moving._replace(partition_epoch=0),)), {}),
    ]
    operations = layout.operations_for(commands, image, {}, controller_epoch=1, now_ms=0)

    async def main() -> PartitionImage:
        store = MemoryStore(MemoryTree())
        await store.open()
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1"), *operations])
        config = BrokerConfig({"node.id": "2", "zookeeper.connect": "in-memory"})
        controller = ActiveController(
            store, config, SystemClock(), asyncio.get_running_loop(), cast(Any, None), 1, Mock()
        )
        await controller.begin(0)
        await controller.end()
        return controller.image.topics[TopicName("t")].partitions[0]

    found = asyncio.run(main())
    assert (found.replicas, found.isr, found.leader, found.is_reassigned) == ((2,), (2,), 2, False)


def test_who_leads_is_said_once_by_a_new_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has found out before it speaks that the leader is gone."""
    image = cluster(2)
    commands: list[Command] = [
        RegisterBroker(image.brokers[BrokerId(2)]),
        CreateTopic(TopicImage(TopicName("t"), TopicId(UUID(int=7)), (partition(0, 1, (1, 2)),)), {}),
    ]
    operations = layout.operations_for(commands, image, {}, controller_epoch=1, now_ms=0)
    told: list[tuple[int, int]] = []

    def send(planned: Mapping[BrokerId, Sequence[Any]], brokers: object) -> None:
        for requests in planned.values():
            for request in requests:
                if isinstance(request, LeaderAndIsrRequest):
                    told.extend((s.leader, s.leader_epoch) for t in request.topic_states for s in t.partition_states)

    async def main() -> None:
        store = MemoryStore(MemoryTree())
        await store.open()
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1"), *operations])
        config = BrokerConfig({"node.id": "2", "zookeeper.connect": "in-memory"})
        controller = ActiveController(
            store, config, SystemClock(), asyncio.get_running_loop(), cast(Any, None), 1, Mock()
        )
        monkeypatch.setattr(controller._channels, "send", send)
        await controller.begin(0)
        await controller.end()

    asyncio.run(main())
    assert told == [(2, 6)]


def test_fewer_than_half_are_believed_to_be_silent() -> None:
    own = {
        broker_id: broker._replace(confirms_leadership=True)
        for broker_id, broker in cluster(1, 2, 3, 4, 5).brokers.items()
    }

    def believed(silent: set[int], alive: int) -> set[int]:
        brokers = {broker_id: own[broker_id] for broker_id in list(own)[:alive]}
        return set(active_controllers._believed(frozenset(map(BrokerId, silent)), brokers))

    assert [believed({1}, alive) for alive in (1, 2, 3)] == [set(), set(), {1}]
    assert [believed({1, 2}, alive) for alive in (3, 4, 5)] == [set(), set(), {1, 2}]
    assert believed({1, 5}, 3) == {1}, "one that has gone does not count"


def test_a_genuine_broker_would_not_learn_that_it_is_fenced() -> None:
    brokers = cluster(1, 2, 3).brokers
    assert active_controllers._believed(frozenset({BrokerId(1)}), brokers) == frozenset()


def heard(*steps: Callable[[ActiveController, MemoryStore], Awaitable[None]]) -> dict[str, int]:
    """A controller of three brokers, to which this happens; the versions of the brokers' nodes after that."""
    image = cluster(1, 2, 3)
    commands: list[Command] = [
        RegisterBroker(broker._replace(confirms_leadership=True, endpoints={})) for broker in image.brokers.values()
    ]
    operations = layout.operations_for(commands, image, {}, controller_epoch=1, now_ms=0)

    async def main() -> dict[str, int]:
        store = MemoryStore(MemoryTree())
        await store.open()
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1"), *operations])
        config = BrokerConfig({"node.id": "1", "zookeeper.connect": "in-memory"})
        controller = ActiveController(
            store, config, SystemClock(), asyncio.get_running_loop(), cast(Any, None), 1, Mock()
        )
        await controller.begin(0)
        for step in steps:
            await step(controller, store)
        for _ in range(50):
            await asyncio.sleep(0)
        await controller.end()
        return {path: node.version for path, node in (await store.read(layout.BROKERS_PATH)).items()}

    return asyncio.run(main())


def says(broker: int, does: bool) -> Callable[[ActiveController, MemoryStore], Awaitable[None]]:
    async def step(controller: ActiveController, store: MemoryStore) -> None:
        controller._listens(BrokerId(broker), does)

    return step


def versions(**changed: int) -> dict[str, int]:
    return {f"{layout.BROKERS_PATH}/{number}": changed.get(f"b{number}", 0) for number in (1, 2, 3)}


def test_a_broker_is_fenced_unless_it_has_been_reached_meanwhile() -> None:
    assert heard(says(2, False)) == versions(b2=1)
    assert heard(says(2, False), says(2, True)) == versions()


def test_a_broker_believed_silent_after_others_have_come_is_fenced_first() -> None:
    """One of two is not believed; one of three is."""

    async def without_3(controller: ActiveController, store: MemoryStore) -> None:
        await controller._see(
            {broker_id: broker for broker_id, broker in controller.image.brokers.items() if broker_id != 3}
        )

    async def with_all(controller: ActiveController, store: MemoryStore) -> None:
        await controller.see_brokers()

    assert heard(without_3, says(2, False)) == versions()
    assert heard(without_3, says(2, False), with_all) == versions(b2=1)


def test_a_broker_with_another_address_is_silent_no_more() -> None:
    found: list[frozenset[BrokerId]] = []

    async def moved(controller: ActiveController, store: MemoryStore) -> None:
        found.append(controller._outages.silent)
        brokers = dict(controller.image.brokers)
        brokers[BrokerId(2)] = brokers[BrokerId(2)]._replace(endpoints={"FOR_CLIENTS": ("elsewhere", 1)})
        await controller._see(brokers)
        found.append(controller._outages.silent)

    heard(says(2, False), moved)
    assert found == [frozenset({BrokerId(2)}), frozenset()]


def test_who_leads_for_lack_of_room_elsewhere_leads_until_there_is_room() -> None:
    """A broker's answer to LeaderAndIsr says that its replica has none; a later one, that it has again."""
    image = cluster(1, 2)
    topic = TopicImage(TopicName("t"), TopicId(UUID(int=7)), (partition(0, 2, (2, 1), (2, 1)),))
    commands: list[Command] = [
        *(RegisterBroker(broker._replace(endpoints={})) for broker in image.brokers.values()),
        CreateTopic(topic, {}),
    ]
    operations = layout.operations_for(commands, image, {}, controller_epoch=1, now_ms=0)
    found: list[tuple[int, tuple[int, ...], bool]] = []

    async def main() -> None:
        store = MemoryStore(MemoryTree())
        await store.open()
        await store.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1"), *operations])
        config = BrokerConfig({"node.id": "1", "zookeeper.connect": "in-memory"})
        controller = ActiveController(
            store, config, SystemClock(), asyncio.get_running_loop(), cast(Any, None), 1, Mock()
        )
        await controller.begin(0)
        sender = Sender(BrokerId(1), 1, "PLAINTEXT")
        for code in (LACKS_ROOM, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE):
            (request,) = probe_requests(sender, controller.image, BrokerId(2))[BrokerId(2)]
            assert isinstance(request, LeaderAndIsrRequest)
            error = LeaderAndIsrPartitionError(partition_index=0, error_code=code)
            answer = LeaderAndIsrResponse(
                topics=[LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[error])]
            )
            controller._answered(BrokerId(2), request, answer)
            for _ in range(100):
                await asyncio.sleep(0)
            part = controller.image.topics[TopicName("t")].partitions[0]
            found.append((part.leader, part.isr, bool(controller._outages.full)))
        await controller.end()

    asyncio.run(main())
    assert found == [(1, (1,), True), (1, (1,), True), (1, (1,), False)]


def test_what_was_being_decided_at_the_end_of_a_term_begins_nothing() -> None:
    """A commit that was under way shows the brokers afterwards: nobody would end a connection to them."""

    async def main() -> None:
        controller = ActiveController(
            MemoryStore(MemoryTree()),
            BrokerConfig({}),
            SystemClock(),
            asyncio.get_running_loop(),
            cast(Any, None),
            1,
            Mock(),
        )
        before = controller.image
        broker = BrokerImage(BrokerId(1), 1, None, {"PLAINTEXT": ("127.0.0.1", 1)})
        await controller.end()
        controller._send_changes(before, before._replace(brokers={broker.broker_id: broker}, configs={}))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
