"""The brokers registered in the cluster, with their epochs and addresses, and the current controller.

Without TLS and SASL this distinguishes another broker from a client. With ZooKeeper, it is read when a request does not
fit the last reading, not for every request; the log of a quorum is there already. The data of brokers that have gone
stay, so that followers go on while their sessions are suspended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from ottla.client.sockets import Resolve
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore
from ottla.tasks import supervised

log = logging.getLogger(__name__)

ANY_BROKER: Final = None
NEVER: Final = -1


class Claim(NamedTuple):
    """A request's claims about its sender, which only another broker may make; None for each one it does not make."""

    broker_id: BrokerId | None = ANY_BROKER
    broker_epoch: int | None = None
    controller_epoch: int | None = None
    receiver_epoch: int | None = None
    """This broker's own epoch, as the controller knows it."""


class Found(NamedTuple):
    """What is registered now."""

    brokers: Mapping[BrokerId, BrokerImage]
    controller_epoch: int
    controller_id: BrokerId | None
    """None between two controllers; the previous one may still be sending in its epoch."""


Find = Callable[[], Awaitable[Found]]
"""Read the registrations. Raises an `OttlaError` while they cannot be read."""


def found_in(store: MetadataStore) -> Find:
    """The registrations in a store."""

    async def find() -> Found:
        nodes = await store.read(layout.BROKERS_PATH)
        nodes |= await store.read(layout.CONTROLLER_EPOCH_PATH)
        nodes |= await store.read(layout.CONTROLLER_PATH)
        image = layout.read_image(nodes)
        epoch = nodes.get(layout.CONTROLLER_EPOCH_PATH)
        controller_id = image.controller_id if layout.CONTROLLER_PATH in nodes else None
        return Found(image.brokers, NEVER if epoch is None else int(epoch.data), controller_id)

    return find


class _Registered(NamedTuple):
    epoch: int
    hosts: frozenset[str]
    addresses: frozenset[str]


class RegisteredBrokers:
    """As last read. On the loop's thread."""

    def __init__(
        self,
        find: Find,
        resolve: Resolve,
        networks: Collection[str],
        own_epoch: Callable[[], int],
    ) -> None:
        """`networks` are those from which brokers connect besides the addresses they are registered with."""
        self._find = find
        self._resolve = resolve
        self._networks = [ip_network(network, strict=False) for network in networks]
        self._own_epoch = own_epoch
        self._brokers: dict[BrokerId, _Registered] = {}
        self._controller_id: BrokerId | None = None
        self.controller_epoch = NEVER
        self._reading: asyncio.Task[bool] | None = None
        self._is_outdated = False
        """The store has changed since the current reading began."""

    def backs(self, claim: Claim, host: str) -> bool:
        """Whether the registrations prove the claims of the sender at address `host`."""
        if claim.broker_id is ANY_BROKER:
            return any(self._is_from(broker, host) for broker in self._brokers.values())
        broker = self._brokers.get(claim.broker_id)
        if broker is None or not self._is_from(broker, host):
            return False
        if claim.broker_epoch is not None and claim.broker_epoch != broker.epoch:
            return False
        if claim.receiver_epoch is not None and claim.receiver_epoch != self._own_epoch():
            return False
        return claim.controller_epoch is None or (
            claim.controller_epoch == self.controller_epoch and self._controller_id in (None, claim.broker_id)
        )

    def may_be_backed_soon(self, claim: Claim, host: str) -> bool:
        """Whether a claim without proof may be ahead of the store's server: it names an epoch that is
        yet to be seen. A foreign address, or an epoch of the past, never will be proved."""
        if claim.broker_id is ANY_BROKER:
            return False
        broker = self._brokers.get(claim.broker_id)
        if broker is None:
            return True
        if not self._is_from(broker, host):
            return False
        return (
            (claim.broker_epoch is not None and claim.broker_epoch > broker.epoch)
            or (claim.receiver_epoch is not None and claim.receiver_epoch > self._own_epoch())
            or (claim.controller_epoch is not None and claim.controller_epoch > self.controller_epoch)
        )

    def stale(self, claim: Claim) -> ErrorCode | None:
        """The error for a claim with an epoch that is over, or that the store does not have (KIP-380)."""
        if claim.controller_epoch is not None and claim.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if claim.receiver_epoch is not None and claim.receiver_epoch < self._own_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if claim.broker_id is not ANY_BROKER and claim.broker_epoch is not None:
            broker = self._brokers.get(claim.broker_id)
            if broker is None or broker.epoch != claim.broker_epoch:
                return ErrorCode.STALE_BROKER_EPOCH
        return None

    async def read(self) -> bool:
        """Read the store; returns whether that was possible. Concurrent callers share one reading."""
        return await asyncio.shield(self.read_soon())

    def read_soon(self) -> "asyncio.Task[bool]":
        """Begin to read the store, unless that has begun."""
        if self._reading is None or self._reading.done():
            self._reading = supervised(asyncio.get_running_loop(), self._read(), "registered brokers")
        return self._reading

    def store_changed(self) -> None:
        """Begin to read the store, also if a reading has begun: it may be too early to show the change.

        A missed change would be read at the next request that needs it, when the store may be away.
        """
        self._is_outdated = True
        self.read_soon()

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self) -> bool:
        while True:
            self._is_outdated = False
            was_read = await self._read_once()
            if not self._is_outdated:
                return was_read

    async def _read_once(self) -> bool:
        try:
            found = await self._find()
        except (OttlaError, ValueError) as problem:
            log.info("the registered brokers cannot be read now: %s", problem)
            return False
        await self._take(found.brokers)
        if found.controller_epoch >= self.controller_epoch:
            self.controller_epoch = found.controller_epoch
            self._controller_id = found.controller_id
        return True

    async def _take(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        for broker_id, broker in brokers.items():
            hosts = frozenset(host for host, _ in broker.endpoints.values())
            addresses = frozenset([_plain(each) for host in hosts for each in await self._resolve(host)])
            known = self._brokers.get(broker_id)
            if not addresses and known is not None and known.hosts == hosts:
                addresses = known.addresses  # its name cannot be resolved at this moment
            self._brokers[broker_id] = _Registered(broker.epoch, hosts, addresses)

    def _is_from(self, broker: _Registered, host: str) -> bool:
        plain = _plain(host)
        if plain in broker.addresses:
            return True
        if not self._networks:
            return False
        address = ip_address(plain)
        return any(address in network for network in self._networks)


def _plain(address: str) -> str:
    """Without the zone of a link-local address."""
    return address.partition("%")[0]
