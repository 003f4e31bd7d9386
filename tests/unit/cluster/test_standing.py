"""A broker that a controller has given up does not take itself for a leader, until it is spoken to again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from ottla.cluster import standing as standings
from ottla.cluster.standing import Standing, give_up, node_of
from ottla.cluster.store import layout
from ottla.cluster.store.base import Create, Operation, StoreConflict, StoreUnavailable
from ottla.ids import BrokerId
from ottla.testing.memory_store import MemoryStore, MemoryTree

ONE = BrokerId(1)
Story = Callable[[Standing, MemoryStore, MemoryStore], Awaitable[None]]


def told(story: Story) -> None:
    """The story of broker 1 with its own store, and that of a controller in epoch 1."""

    async def main() -> None:
        tree = MemoryTree()
        own, controllers = MemoryStore(tree), MemoryStore(tree)
        await own.open()
        await controllers.open()
        await controllers.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1")])
        await own.commit([Create(node_of(ONE), b"me", True)])
        standing = Standing(own, ONE, asyncio.get_running_loop())
        standing.start()
        try:
            async with asyncio.timeout(20):
                await story(standing, own, controllers)
        finally:
            await standing.close()

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def test_it_is_in_doubt_until_a_controller_speaks() -> None:
    async def story(standing: Standing, own: MemoryStore, controllers: MemoryStore) -> None:
        assert standing.holds()
        for _ in range(2):
            await give_up(controllers, ONE, 0)
            await until(lambda: not standing.holds())
            standing.spoken_to()
            assert standing.holds()
        assert (await own.read(node_of(ONE)))[node_of(ONE)].data == b"me"
        asked, _ = layout.read_log_directory_failures(await own.read(layout.LOG_DIRECTORY_EVENTS_PATH))
        assert asked == {ONE}, "it wants to be told what it leads"

    told(story)


def test_it_asks_until_the_store_takes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "LOOK_AGAIN_S", 0.0)

    async def story(standing: Standing, own: MemoryStore, controllers: MemoryStore) -> None:
        taken = own.commit
        problems = [StoreUnavailable("away"), StoreUnavailable("away")]

        async def commit(operations: Sequence[Operation]) -> None:
            if problems:
                raise problems.pop()
            await taken(operations)

        monkeypatch.setattr(own, "commit", commit)
        await give_up(controllers, ONE, 0)
        while not await own.read(layout.LOG_DIRECTORY_EVENTS_PATH):
            await asyncio.sleep(0)
        assert not problems
        assert not standing.holds()

    told(story)


def test_a_broker_that_has_gone_is_not_given_up() -> None:
    async def story(standing: Standing, own: MemoryStore, controllers: MemoryStore) -> None:
        await give_up(controllers, BrokerId(2), 0)
        own.expire()
        await give_up(controllers, ONE, 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not standing.is_given_up

    told(story)


def test_a_controller_of_the_past_gives_nobody_up() -> None:
    async def story(standing: Standing, own: MemoryStore, controllers: MemoryStore) -> None:
        with pytest.raises(StoreConflict):
            await give_up(controllers, ONE, 7)
        for _ in range(20):
            await asyncio.sleep(0)
        assert standing.holds()

    told(story)


def test_what_the_store_says_is_asked_too() -> None:
    async def story(standing: Standing, own: MemoryStore, controllers: MemoryStore) -> None:
        await own.close()
        assert not standing.holds()
        assert not standing.is_given_up

    told(story)
