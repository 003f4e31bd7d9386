"""What a request claims of its sender, held against what the store has."""

import asyncio
from collections.abc import Mapping

import pytest

from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.registered_brokers import Claim, RegisteredBrokers, found_in
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, Delete, StoreUnavailable, Update
from ottla.testing.memory_store import MemoryStore, MemoryTree

ONE, TWO = BrokerId(1), BrokerId(2)
OWN_EPOCH = 100


class Cluster:
    """A store with brokers in it, and names that can be resolved."""

    def __init__(self, *networks: str) -> None:
        self.store = MemoryStore(MemoryTree())
        self.hosts: Mapping[str, set[str]] = {"one": {"10.0.0.1"}, "two": {"10.0.0.2", "fd00::2"}}
        self.brokers = RegisteredBrokers(found_in(self.store), self._resolve, networks, lambda: OWN_EPOCH)

    async def _resolve(self, host: str) -> set[str]:
        return self.hosts.get(host, set())

    async def register(self, broker_id: BrokerId, host: str) -> int:
        path = f"{layout.BROKERS_PATH}/{broker_id}"
        image = BrokerImage(broker_id, -1, None, {"PLAINTEXT": (host, 9092)})
        await self.store.commit([Create(path, layout._broker_node(image, 0), True)])
        await self.brokers.read()
        return (await self.store.read(path))[path].created

    async def unregister(self, broker_id: BrokerId) -> None:
        path = f"{layout.BROKERS_PATH}/{broker_id}"
        await self.store.commit([Delete(path, (await self.store.read(path))[path].version)])
        await self.brokers.read()

    async def elect(self, controller_epoch: int, controller: BrokerId | None) -> None:
        nodes = await self.store.read("/")
        data = str(controller_epoch).encode()
        known = nodes.get(layout.CONTROLLER_EPOCH_PATH)
        await self.store.commit(
            [
                Create(layout.CONTROLLER_EPOCH_PATH, data)
                if known is None
                else Update(layout.CONTROLLER_EPOCH_PATH, data, known.version)
            ]
        )
        if layout.CONTROLLER_PATH in nodes:
            await self.store.commit([Delete(layout.CONTROLLER_PATH, nodes[layout.CONTROLLER_PATH].version)])
        if controller is not None:
            node = b'{"version":2,"brokerid":%d,"timestamp":"0"}' % controller
            await self.store.commit([Create(layout.CONTROLLER_PATH, node, True)])
        await self.brokers.read()


async def opened(*networks: str) -> Cluster:
    cluster = Cluster(*networks)
    await cluster.store.open()
    return cluster


def test_a_broker_is_one_at_its_address_with_its_epoch() -> None:
    async def story() -> None:
        cluster = await opened()
        one, two = await cluster.register(ONE, "one"), await cluster.register(TWO, "two")
        backs = cluster.brokers.backs
        assert backs(Claim(ONE, one), "10.0.0.1")
        assert backs(Claim(TWO, two), "fd00::2%eth0")
        assert not backs(Claim(ONE, one), "10.0.0.2"), "another broker's address is no proof"
        assert not backs(Claim(ONE, two), "10.0.0.1")
        assert not backs(Claim(ONE, -1), "10.0.0.1")
        assert not backs(Claim(BrokerId(3), one), "10.0.0.1")
        assert backs(Claim(), "10.0.0.2")
        assert not backs(Claim(), "10.0.0.3")
        assert cluster.brokers.stale(Claim(ONE, one)) is None
        assert cluster.brokers.stale(Claim(ONE, two)) is ErrorCode.STALE_BROKER_EPOCH

    asyncio.run(story())


def test_networks_are_added_to_the_addresses() -> None:
    async def story() -> None:
        cluster = await opened("192.168.1.0/24", "fd00::/16")
        one = await cluster.register(ONE, "one")
        for host, is_backed in (("192.168.1.77", True), ("fd00::9", True), ("192.168.2.1", False), ("10.0.0.1", True)):
            assert cluster.brokers.backs(Claim(ONE, one), host) is is_backed

    asyncio.run(story())


def test_a_broker_that_comes_again_replaces_itself_and_one_that_goes_is_remembered() -> None:
    async def story() -> None:
        cluster = await opened()
        first = await cluster.register(ONE, "one")
        await cluster.unregister(ONE)
        assert cluster.brokers.backs(Claim(ONE, first), "10.0.0.1"), "its session may only be in doubt"
        second = await cluster.register(ONE, "two")
        assert second > first
        assert not cluster.brokers.backs(Claim(ONE, first), "10.0.0.1")
        assert cluster.brokers.backs(Claim(ONE, second), "10.0.0.2")
        cluster.hosts = {}
        await cluster.brokers.read()
        assert cluster.brokers.backs(Claim(ONE, second), "10.0.0.2"), "its name was resolved before"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("claim", "is_backed"),
    [
        (Claim(ONE, None, 5, OWN_EPOCH), True),
        (Claim(TWO, None, 5, OWN_EPOCH), False),
        (Claim(ONE, None, 4, OWN_EPOCH), False),
        (Claim(ONE, None, 6, OWN_EPOCH), False),
        (Claim(ONE, None, 5, OWN_EPOCH + 1), False),
        (Claim(ONE, None, 5, -1), False),
    ],
)
def test_only_the_controller_of_the_store_is_the_controller(claim: Claim, is_backed: bool) -> None:
    async def story() -> None:
        cluster = await opened()
        await cluster.register(ONE, "one")
        await cluster.register(TWO, "one")
        await cluster.elect(5, ONE)
        assert cluster.brokers.backs(claim, "10.0.0.1") is is_backed

    asyncio.run(story())


def test_between_two_controllers_the_epoch_decides() -> None:
    async def story() -> None:
        cluster = await opened()
        await cluster.register(ONE, "one")
        await cluster.elect(5, None)
        assert cluster.brokers.backs(Claim(ONE, None, 5, OWN_EPOCH), "10.0.0.1")
        await cluster.elect(6, TWO)
        assert not cluster.brokers.backs(Claim(ONE, None, 5, OWN_EPOCH), "10.0.0.1")
        assert cluster.brokers.stale(Claim(ONE, None, 5, OWN_EPOCH)) is ErrorCode.STALE_CONTROLLER_EPOCH

    asyncio.run(story())


def test_what_was_read_stays_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = await opened()
        one = await cluster.register(ONE, "one")

        async def fail(prefix: str) -> None:
            raise StoreUnavailable("it is away")

        monkeypatch.setattr(cluster.store, "read", fail)
        assert not await cluster.brokers.read()
        assert cluster.brokers.backs(Claim(ONE, one), "10.0.0.1")
        assert cluster.brokers.may_be_backed_soon(Claim(ONE, one + 1), "10.0.0.1")
        assert not cluster.brokers.may_be_backed_soon(Claim(ONE, one + 1), "10.0.0.9")

    asyncio.run(story())


def test_a_broker_that_registers_while_the_store_is_read_is_known_without_another_request() -> None:
    """Its first fetch may come when the store is away."""

    async def story() -> None:
        cluster = await opened()
        cluster.brokers.store_changed()
        await asyncio.sleep(0)  # the brokers are read, and nobody is there
        await asyncio.sleep(0)
        path = f"{layout.BROKERS_PATH}/{ONE}"
        image = BrokerImage(ONE, -1, None, {"PLAINTEXT": ("one", 9092)})
        await cluster.store.commit([Create(path, layout._broker_node(image, 0), True)])
        cluster.brokers.store_changed()
        await cluster.brokers.read()
        cluster.store.lose()
        assert cluster.brokers.backs(Claim(), "10.0.0.1")

    asyncio.run(story())
