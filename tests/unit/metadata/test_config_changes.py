"""Settings that other brokers change are heard of, once, and notifications do not pile up."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.cluster.images import cluster

from ottla.cluster.commands import SetConfigs
from ottla.cluster.image import ResourceType
from ottla.metadata import notifications
from ottla.metadata.config_changes import ConfigChanges, FoundSettings
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Operation
from ottla.testing.memory_store import MemoryStore, MemoryTree

TOPIC = SetConfigs(ResourceType.TOPIC, "orders", {"retention.ms": "5"})
GROUP = SetConfigs(ResourceType.GROUP, "my group/x", {"consumer.session.timeout.ms": "50000"})
EVERY_BROKER = SetConfigs(ResourceType.BROKER, "", {"log.cleaner.threads": "2"})


def operations(*commands: SetConfigs, versions: dict[str, int] | None = None) -> list[Operation]:
    return layout.operations_for(commands, cluster(1), versions or {}, controller_epoch=1, now_ms=0, notify=True)


class Two:
    """A store in which one broker changes settings, and another that listens."""

    def __init__(self) -> None:
        tree = MemoryTree()
        self.changing, self.listening = MemoryStore(tree), MemoryStore(tree)
        self.heard: list[SetConfigs] = []
        self.changes = ConfigChanges(self.listening, self._hear)

    def _hear(self, found: Sequence[FoundSettings]) -> None:
        self.heard += [each.settings for each in found]

    async def __aenter__(self) -> "Two":
        await self.changing.open()
        await self.listening.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.changes.close()
        await self.listening.close()
        await self.changing.close()

    async def start(self) -> None:
        self.changes.start(await self.listening.read("/"))
        await settled()


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_hears_what_others_change() -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.start()
            await two.changing.commit(operations(TOPIC, GROUP, EVERY_BROKER))
            await settled()
            assert two.heard == [TOPIC, EVERY_BROKER, GROUP]
            two.heard.clear()
            gone = TOPIC._replace(configs={})
            await two.changing.commit(operations(gone, versions={"/config/topics/orders": 0}))
            await settled()
            assert two.heard == [gone]

    asyncio.run(scenario())


def test_tells_kafka_nothing_that_it_does_not_know() -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.changing.commit(operations(TOPIC, GROUP))
            (told,) = (await two.listening.read(layout.CONFIG_CHANGES_PATH)).values()
            assert told.data == b'{"version":2,"entity_path":"topics/orders"}'

    asyncio.run(scenario())


def test_knows_what_was_there_and_hears_what_came_before_it_listened() -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.changing.commit(operations(TOPIC))
            known = await two.listening.read("/")
            await two.changing.commit(operations(EVERY_BROKER))
            two.changes.start(known)
            await settled()
            assert two.heard == [EVERY_BROKER]

    asyncio.run(scenario())


def test_passes_over_settings_of_what_ottla_does_not_have() -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.start()
            for data in (
                b'{"version":2,"entity_path":"users/a%20b/groups/c"}',
                b'{"version":1,"entity_type":"topics","entity_name":"orders"}',
                b"?",
            ):
                path = f"{layout.CONFIG_CHANGES_PATH}/config_change_"
                await two.changing.commit([Create(path, data, sequential=True)])
            await two.changing.commit(operations(TOPIC))
            await settled()
            assert two.heard == [TOPIC]

    asyncio.run(scenario())


def test_removes_notifications_that_everybody_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.start()
            await two.changing.commit(operations(TOPIC))
            await settled()
            assert len(await two.listening.read(layout.CONFIG_CHANGES_PATH)) == 1
            monkeypatch.setattr(notifications, "KEPT_S", -1.0)
            await two.changing.commit(operations(EVERY_BROKER))
            await settled()
            assert await two.listening.read(layout.CONFIG_CHANGES_PATH) == {}
            assert two.heard == [TOPIC, EVERY_BROKER]

    asyncio.run(scenario())


def test_goes_on_when_the_store_is_there_again() -> None:
    async def scenario() -> None:
        async with Two() as two:
            await two.start()
            two.listening.lose()
            await two.changing.commit(operations(TOPIC))
            await settled()
            assert two.heard == []
            two.listening.begin()
            await two.changing.commit(operations(EVERY_BROKER))
            await settled()
            assert two.heard == [TOPIC, EVERY_BROKER]

    asyncio.run(scenario())
