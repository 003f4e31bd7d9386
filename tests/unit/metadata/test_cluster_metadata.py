"""What a broker in a cluster knows of topics whose settings it cannot read at once."""

import asyncio
from uuid import UUID

from ottla.clock import SystemClock
from ottla.config.broker import BrokerConfig
from ottla.ids import TopicId, TopicName
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.store.base import Node
from ottla.testing.memory_store import MemoryStore, MemoryTree

TOPIC = TopicId(UUID(int=1))


class Away(MemoryStore):
    """A store that answers only when it is back."""

    def __init__(self) -> None:
        super().__init__(MemoryTree())
        self.is_back = asyncio.Event()

    async def read(self, prefix: str) -> dict[str, Node]:
        await self.is_back.wait()
        return await super().read(prefix)


def test_settings_that_take_long_are_read_to_the_end() -> None:
    async def main() -> None:
        store = Away()
        await store.open()
        metadata = ClusterMetadata(
            store, BrokerConfig({"node.id": "1", "zookeeper.connect": "in-memory"}), SystemClock()
        )
        await asyncio.wait_for(metadata.learn_settings_soon({TOPIC: TopicName("t")}), 30)
        assert not metadata.knows_settings_of(TOPIC)
        store.is_back.set()
        while not metadata.knows_settings_of(TOPIC):
            await asyncio.sleep(0)
        await metadata.close()

    asyncio.run(main())
