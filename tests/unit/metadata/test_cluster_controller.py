"""Who is the controller when sessions come and go while it is looked at."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.clock import SystemClock
from ottla.cluster.image import empty_image
from ottla.metadata import cluster_controller
from ottla.metadata.cluster_controller import ClusterController
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, SessionEvent
from ottla.testing.memory_store import MemoryStore, MemoryTree


class Resumable(MemoryStore):
    def tell(self, *events: SessionEvent) -> None:
        for event in events:
            for listener in self._listeners:
                listener(event)


class HeldController:
    """Begins when it may."""

    may_begin: asyncio.Event
    begun = 0

    epochs: list[int]
    has_others_that_make_topics = False

    def __init__(self, *parts: object) -> None:
        self.service = object()
        HeldController.epochs.append(cast(int, parts[5]))

    async def begin(self, epoch_version: int) -> None:
        HeldController.begun += 1
        await HeldController.may_begin.wait()

    async def see_brokers(self) -> None:
        pass

    async def see_failed_directories(self) -> None:
        pass

    async def end(self) -> None:
        pass


def test_a_controller_whose_session_was_suspended_while_it_began_is_it_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        HeldController.may_begin, HeldController.epochs, HeldController.begun = asyncio.Event(), [], 0
        store = Resumable(MemoryTree())
        await store.open()
        metadata = SimpleNamespace(controller=None, image=empty_image("cluster"))
        config = SimpleNamespace(node_id=1)
        controller = ClusterController(
            store, cast(Any, metadata), cast(Any, config), SystemClock(), asyncio.get_running_loop(), cast(Any, None)
        )
        controller.start()
        async with asyncio.timeout(20):
            while not HeldController.begun:
                await asyncio.sleep(0.001)
            store.tell(SessionEvent.LOST, SessionEvent.RESUMED)
            HeldController.may_begin.set()
            while metadata.controller is None:
                await asyncio.sleep(0.001)
        assert HeldController.begun == 2  # what was decided in doubt is not relied on
        assert HeldController.epochs == [1, 2]  # the epoch fences requests from before
        assert (await store.read(layout.CONTROLLER_EPOCH_PATH))[layout.CONTROLLER_EPOCH_PATH].data == b"2"
        store.tell(SessionEvent.LOST)
        assert metadata.controller is None
        await controller.close()
        await store.close()

    monkeypatch.setattr(cluster_controller, "ActiveController", HeldController)
    asyncio.run(main())


@pytest.mark.parametrize("others", [True, False], ids=["beside Kafka", "alone"])
def test_topics_that_others_make_are_looked_at(monkeypatch: pytest.MonkeyPatch, others: bool) -> None:
    looked: list[str] = []

    class LookingController(HeldController):
        has_others_that_make_topics = others

        async def see_topics(self) -> None:
            looked.append("topics")

    async def main() -> None:
        HeldController.may_begin, HeldController.epochs, HeldController.begun = asyncio.Event(), [], 0
        HeldController.may_begin.set()
        tree = MemoryTree()
        store, other = Resumable(tree), MemoryStore(tree)
        await store.open()
        await other.open()
        metadata = SimpleNamespace(controller=None, image=empty_image("cluster"))
        config = SimpleNamespace(node_id=1)
        controller = ClusterController(
            store, cast(Any, metadata), cast(Any, config), SystemClock(), asyncio.get_running_loop(), cast(Any, None)
        )
        controller.start()
        async with asyncio.timeout(20):
            while metadata.controller is None:
                await asyncio.sleep(0.001)
            while others and not looked:  # what was made before the watch
                await asyncio.sleep(0.001)
            assert any(path == layout.TOPICS_PATH for path, _ in store.watches) is others
            await other.commit([Create(f"{layout.TOPICS_PATH}/__transaction_state", b"{}")])
            while others and len(looked) < 2:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert bool(looked) is others
        store.tell(SessionEvent.LOST)
        async with asyncio.timeout(20):
            while controller.active_controller is not None:
                await asyncio.sleep(0.001)
        assert all(path != layout.TOPICS_PATH for path, _ in store.watches)
        await controller.close()
        await other.close()
        await store.close()

    monkeypatch.setattr(cluster_controller, "ActiveController", LookingController)
    asyncio.run(main())


def closed_after(monkeypatch: pytest.MonkeyPatch, store: MemoryStore, *, before: list[Create]) -> list[str]:
    """What of the controller's election is left in the store when a broker has stopped, its session still there."""

    async def main() -> list[str]:
        HeldController.may_begin, HeldController.epochs, HeldController.begun = asyncio.Event(), [], 0
        HeldController.may_begin.set()
        await store.open()
        await store.commit(before)
        metadata = SimpleNamespace(controller=None, image=empty_image("cluster"))
        controller = ClusterController(
            store,
            cast(Any, metadata),
            cast(Any, SimpleNamespace(node_id=1)),
            SystemClock(),
            asyncio.get_running_loop(),
            cast(Any, None),
        )
        controller.start()
        async with asyncio.timeout(20):
            while not before and metadata.controller is None:
                await asyncio.sleep(0.001)
            await controller.close()
        left = list(await store.read(layout.CONTROLLER_PATH))
        await store.close()
        return left

    monkeypatch.setattr(cluster_controller, "ActiveController", HeldController)
    return asyncio.run(main())


def test_a_controller_that_stops_lets_others_race_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert closed_after(monkeypatch, MemoryStore(MemoryTree()), before=[]) == []


def test_the_node_of_another_controller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [Create(layout.CONTROLLER_PATH, b'{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}')]
    assert closed_after(monkeypatch, MemoryStore(MemoryTree()), before=other) == [layout.CONTROLLER_PATH]


def test_what_lasts_is_reported_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        controller = ClusterController(
            MemoryStore(MemoryTree()), *cast(Any, (None, None, None, SimpleNamespace(time=lambda: now[0]), None))
        )
        for now[0], problem in ((0.0, "a"), (30.0, "a"), (59.0, "b"), (61.0, "b"), (120.0, "b")):
            controller._complain(problem)

    now = [0.0]
    asyncio.run(main())
    problems = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert problems == ["a", "b", "b"]
