"""A broker that a controller has given up does not take itself for a leader, until it is spoken to again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from ottla.ids import BrokerId
from ottla.metadata import leadership_lease as leases
from ottla.metadata.leadership_lease import LeadershipLease, fence, node_of
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Operation, StoreConflict, StoreUnavailable
from ottla.testing.memory_store import MemoryStore, MemoryTree

ONE = BrokerId(1)
Story = Callable[[LeadershipLease, MemoryStore, MemoryStore], Awaitable[None]]


def told(story: Story) -> None:
    """The story of broker 1 with its own store, and that of a controller in epoch 1."""

    async def main() -> None:
        tree = MemoryTree()
        own, controllers = MemoryStore(tree), MemoryStore(tree)
        await own.open()
        await controllers.open()
        await controllers.commit([Create(layout.CONTROLLER_EPOCH_PATH, b"1")])
        await own.commit([Create(node_of(ONE), b"me", True)])
        lease = LeadershipLease(own, ONE, asyncio.get_running_loop())
        lease.start()
        try:
            async with asyncio.timeout(20):
                await story(lease, own, controllers)
        finally:
            await lease.close()

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def test_it_is_fenced_until_a_controller_sends_its_partitions() -> None:
    async def story(lease: LeadershipLease, own: MemoryStore, controllers: MemoryStore) -> None:
        assert lease.holds()
        for _ in range(2):
            await fence(controllers, ONE, 0)
            await until(lambda: not lease.holds())
            lease.unfence()
            assert lease.holds()
        assert (await own.read(node_of(ONE)))[node_of(ONE)].data == b"me"
        asked, _ = layout.read_log_directory_failures(await own.read(layout.LOG_DIRECTORY_EVENTS_PATH))
        assert asked == {ONE}, "it wants to be told what it leads"

    told(story)


def test_it_asks_until_the_store_takes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RETRY_S", 0.0)

    async def story(lease: LeadershipLease, own: MemoryStore, controllers: MemoryStore) -> None:
        taken = own.commit
        problems = [StoreUnavailable("away"), StoreUnavailable("away")]

        async def commit(operations: Sequence[Operation]) -> None:
            if problems:
                raise problems.pop()
            await taken(operations)

        monkeypatch.setattr(own, "commit", commit)
        await fence(controllers, ONE, 0)
        while not await own.read(layout.LOG_DIRECTORY_EVENTS_PATH):
            await asyncio.sleep(0)
        assert not problems
        assert not lease.holds()

    told(story)


def test_a_broker_that_has_gone_is_not_fenced() -> None:
    async def story(lease: LeadershipLease, own: MemoryStore, controllers: MemoryStore) -> None:
        await fence(controllers, BrokerId(2), 0)
        own.expire()
        await fence(controllers, ONE, 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not lease.is_fenced

    told(story)


def test_a_controller_of_the_past_gives_nobody_up() -> None:
    async def story(lease: LeadershipLease, own: MemoryStore, controllers: MemoryStore) -> None:
        with pytest.raises(StoreConflict):
            await fence(controllers, ONE, 7)
        for _ in range(20):
            await asyncio.sleep(0)
        assert lease.holds()

    told(story)


def test_what_the_store_says_is_asked_too() -> None:
    async def story(lease: LeadershipLease, own: MemoryStore, controllers: MemoryStore) -> None:
        await own.close()
        assert not lease.holds()
        assert not lease.is_fenced

    told(story)
