"""With which settings the broker of a node that moves is started, and when."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.metadata.cluster_metadata import MovedAway
from ottla.metadata.freezable_store import MetadataFrozen
from ottla.server import migration_switch
from ottla.server.migration_switch import MigrationSwitch

INCARNATION = UUID(int=500)
CONFIG = BrokerConfig(
    {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "zookeeper.connect": "zk:2181",
        "zookeeper.metadata.migration.enable": "true",
        "controller.quorum.voters": "11@a:1,12@b:1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
)
ON_ZOOKEEPER, UNDER_QUORUM = "ZooKeeper", "quorum"


class FakeMigration:
    """Moves when `moved` is set."""

    incarnation_id = INCARNATION
    broker_epoch = 1

    def __init__(self, *, has_begun: bool = False, problem: OttlaError | None = None) -> None:
        self.has_begun = has_begun
        self.moved = asyncio.Event()
        self.left = asyncio.Event()
        self.announced = False
        self.refusals: list[Exception] = []
        """What happens when it leaves, once each."""
        self._problem = problem

    def follow(self, node: object) -> None:
        pass

    def announce(self, *_: object) -> None:
        self.announced = True

    async def until_moved(self) -> None:
        await self.moved.wait()
        if self._problem is not None:
            raise self._problem

    async def leave(self) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.left.set()


class Parts:
    """The parts that are started and stopped, in order."""

    def __init__(self, *refusals: Exception) -> None:
        self.events: list[tuple[str, str, UUID | None]] = []
        self.was_beating = False
        """Whether heartbeats were sent while the last part began."""
        self._refusals = list(refusals)

    def fail(self, refusal: Exception) -> None:
        """Refuse the next start."""
        self._refusals.append(refusal)

    async def begin(self, config: BrokerConfig, moved_as: UUID | None) -> AsyncExitStack:
        kind = UNDER_QUORUM if config.zookeeper_connect is None else ON_ZOOKEEPER
        if self._refusals:
            raise self._refusals.pop()
        await asyncio.sleep(0)
        self.was_beating = any(task.get_name() == "heartbeats during the move" for task in asyncio.all_tasks())
        self.events.append(("started", kind, moved_as))
        stack = AsyncExitStack()
        stack.callback(self.events.append, ("stopped", kind, None))
        return stack


def switch(migration: FakeMigration, parts: Parts, failed: Callable[[str], None]) -> MigrationSwitch:
    node: Any = SimpleNamespace(leader_endpoint=lambda: None, high_watermark=5)
    return MigrationSwitch(cast(Any, migration), node, cast(Any, None), CONFIG, parts.begin, failed)


async def started(
    migration: FakeMigration, parts: Parts, failures: list[str], *, were_clean: bool = True
) -> MigrationSwitch:
    moving = switch(migration, parts, failures.append)
    directories: Any = SimpleNamespace(were_clean=were_clean, stayed_open=False)
    await moving.start(lambda: cast(Any, None), directories)
    return moving


def test_the_part_on_zookeeper_ends_before_that_under_the_quorum_begins() -> None:
    async def main() -> None:
        migration, parts, failures = FakeMigration(), Parts(), list[str]()
        moving = await started(migration, parts, failures)
        assert migration.announced
        migration.moved.set()
        async with asyncio.timeout(20):
            await migration.left.wait()
        assert parts.events == [
            ("started", ON_ZOOKEEPER, None),
            ("stopped", ON_ZOOKEEPER, None),
            ("started", UNDER_QUORUM, INCARNATION),
        ]
        assert not moving.is_under_way
        await moving.close()
        assert parts.events[3:] == [("stopped", UNDER_QUORUM, None)]
        assert failures == []

    asyncio.run(main())


@pytest.mark.parametrize("refusals", [[], [MovedAway()], [MetadataFrozen("just now")]])
def test_a_start_after_the_freeze_is_one_under_the_quorum(refusals: list[OttlaError]) -> None:
    async def main() -> None:
        migration, parts = FakeMigration(has_begun=not refusals), Parts(*refusals)
        starting = asyncio.ensure_future(started(migration, parts, []))
        for _ in range(5):
            await asyncio.sleep(0)
        assert parts.events == []  # not before the log has the metadata
        migration.moved.set()
        moving = await starting
        async with asyncio.timeout(20):
            await migration.left.wait()
        assert parts.events == [("started", UNDER_QUORUM, None)]
        await moving.close()

    asyncio.run(main())


@pytest.mark.parametrize("were_clean", [True, False])
def test_a_broker_that_could_not_close_its_logs_comes_as_another_incarnation(were_clean: bool) -> None:
    """Nothing keeps the one alive that is registered: no other could register meanwhile."""

    async def main() -> None:
        migration, parts = FakeMigration(), Parts()
        moving = await started(migration, parts, [], were_clean=were_clean)
        migration.moved.set()
        async with asyncio.timeout(20):
            await migration.left.wait()
        assert parts.events[-1] == ("started", UNDER_QUORUM, INCARNATION if were_clean else None)
        assert parts.was_beating == were_clean
        await moving.close()

    asyncio.run(main())


def test_a_defect_ends_the_broker_instead_of_the_task_alone() -> None:
    async def main() -> None:
        migration, parts, failures = FakeMigration(), Parts(), list[str]()
        moving = await started(migration, parts, failures)
        parts.fail(ValueError("a defect"))
        migration.moved.set()
        async with asyncio.timeout(20):
            while not failures:
                await asyncio.sleep(0)
        assert "ValueError('a defect')" in failures[0]
        await moving.close()

    asyncio.run(main())


def test_a_broker_that_has_moved_serves_on_though_it_cannot_leave_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_switch, "LONGEST_PAUSE_S", 0.001)

    async def main() -> None:
        migration, parts, failures = FakeMigration(), Parts(), list[str]()
        migration.refusals = [ValueError("a defect"), OSError("a disk")]
        moving = await started(migration, parts, failures)
        migration.moved.set()
        async with asyncio.timeout(20):
            await migration.left.wait()
        assert failures == []
        await moving.close()

    asyncio.run(main())
