"""How many connections there may be: in all, at one listener, from one address; and new ones per second of each.

As in Kafka (`ConnectionQuotas`): a broker or listener that is full, or whose connections come too fast, accepts none
until there is room, and new connections wait in the system's queue; an address that has its share is refused, and one
whose connections come too fast waits for the refusal (KIP-612). The limits of the broker as a whole spare the listener
between brokers where clients have another one: a connection there takes the place of the one elsewhere that was silent
for the longest time.

Connections leave some of the process's file descriptors to the log: a broker that cannot open files loses its disks.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ottla.cluster.entity_names import DEFAULT
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.errors import InvalidConfig
from ottla.quotas.limits import Limits
from ottla.quotas.rates import TokenBucket, Window
from ottla.quotas.usage import Meters
from ottla.security.acls import canonical_host

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView

log = logging.getLogger(__name__)

OVERRIDES: Final = "max.connections.per.ip.overrides"
LONGEST_WAIT_S: Final = 1.0
UNLIMITED: Final = 2**31 - 1
MOST_DELAYED: Final = 1_000
"""Connections of addresses whose connections come too fast that wait for their refusal; more are refused at once."""
LEFT_FOR_FILES: Final = 0.1
"""The part of the file descriptors that connections leave free."""


class Counted(Protocol):
    """A connection, as far as it is counted."""

    client_host: str
    last_active: float

    def close(self) -> None: ...

    def describe(self) -> str: ...


def addresses_of(host: str) -> set[str]:
    """The addresses of a host name, as text. Raises OSError."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


class ListenerLimits:
    """The limits of one listener, or of the broker as a whole."""

    def __init__(self, window: Window) -> None:
        self.count = 0
        self._most = self._per_s = UNLIMITED
        self._rate = TokenBucket(window)

    def change(self, most: int, per_s: int) -> None:
        """Apply other limits: connections at a time, and new ones per second."""
        self._most, self._per_s = most, per_s
        self._rate.limit = per_s

    @property
    def excess(self) -> int:
        """How many connections there are too many."""
        return self.count - self._most

    def wait_s(self, now: float) -> float | None:
        """How long to accept nothing: 0 for not at all, None until there are fewer connections."""
        if self.count >= self._most:
            return None
        if self._per_s == UNLIMITED:
            return 0.0
        return LONGEST_WAIT_S if self._per_s <= 0 else min(self._rate.excess_ms(now * 1000) / 1000, LONGEST_WAIT_S)

    def opened(self, now: float) -> None:
        """Count one more."""
        self.count += 1
        if self._per_s != UNLIMITED:
            self._rate.add(1, now * 1000)


def setting_of(config: "BrokerConfig", listener: str, name: str) -> int:
    """A limit of one listener, which has its prefix; no limit without one."""
    own = config.given.get(f"listener.name.{listener.lower()}.{name}")
    value = UNLIMITED if own is None else BROKER_SETTINGS[name].parse(own)
    assert isinstance(value, int)
    return value


class ConnectionLimits:
    """Counts the connections of all listeners of a broker. On the loop's thread, but for `resolved`."""

    def __init__(
        self,
        config: "BrokerConfig",
        *,
        resolve: Callable[[str], set[str]] = addresses_of,
        descriptors: int | None = None,
    ) -> None:
        """`descriptors`: how many files and connections this process may have open.

        Raises InvalidConfig if a host in max.connections.per.ip.overrides has no address."""
        self._resolve = resolve
        self._config = config
        self.highest_descriptor = None if descriptors is None else int(descriptors * (1 - LEFT_FOR_FILES))
        """A connection with a higher one is refused: numbers are given out from the lowest on."""
        self._window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._connections: dict[Counted, str] = {}
        self._per_ip: Counter[str] = Counter()
        self._waiting: dict[Callable[[], None], None] = {}
        self._all = ListenerLimits(self._window)
        self._listeners: dict[str, ListenerLimits] = {}
        self._addresses: Mapping[str, float] = {}
        self._from_addresses = Meters(partial(TokenBucket, self._window), self._window.idle_after_ms)
        self.delayed = 0
        """Connections that wait for their refusal."""
        self._overrides = self.resolved(config.max_connections_per_ip_overrides)
        self._follow(config)

    def _follow(self, config: "BrokerConfig") -> None:
        self._config = config
        self._spared = config.inter_broker_listener if len(config.listeners) > 1 else None
        self._all.change(config.max_connections, config.max_connection_creation_rate)
        for name in {*self._listeners, *(listener.name for listener in config.listeners)}:
            self._of(name).change(
                setting_of(config, name, "max.connections"), setting_of(config, name, "max.connection.creation.rate")
            )

    def _of(self, listener: str) -> ListenerLimits:
        found = self._listeners.get(listener)
        if found is None:
            found = self._listeners[listener] = ListenerLimits(self._window)
        return found

    def __len__(self) -> int:
        return len(self._connections)

    def resolved(self, overrides: Mapping[str, int]) -> dict[str, int]:
        """Limits by address instead of host name; may wait for a name server. Raises InvalidConfig."""
        found: dict[str, int] = {}
        for host, count in overrides.items():
            try:
                addresses = self._resolve(host)
            except OSError as error:
                raise InvalidConfig(f"{OVERRIDES}: {host!r} has no address: {error.strerror}") from error
            for address in addresses:
                found[address] = count
        return found

    def change(self, config: "BrokerConfig", overrides: dict[str, int]) -> None:
        """Apply other settings from now on; `overrides` by address. Connections past the limits are closed, those that
        were silent for the longest time first."""
        self._overrides = overrides
        self._follow(config)
        self._close_excess()
        for name, limits in self._listeners.items():
            self._close_silent([each for each, at in self._connections.items() if at == name], limits.excess)
        self._wake()

    def limit_addresses(self, limits: Limits) -> None:
        """Apply the quotas `connection_creation_rate` from now on."""
        self._addresses = {canonical_host(host): per_s for host, per_s in limits.addresses.items()}

    # -- accepting ---------------------------------------------------------------------------------------------------

    def wait_s(self, listener: str, now: float) -> float | None:
        """How long to accept nothing at this listener: 0 for now, None until `when_room` is called."""
        own_s = self._of(listener).wait_s(now)
        if own_s is None or listener == self._spared:
            return own_s
        all_s = self._all.wait_s(now)
        return None if all_s is None else max(own_s, all_s)

    def when_room(self, accept: Callable[[], None]) -> None:
        """Call `accept` once, when there may be room."""
        self._waiting[accept] = None

    def refusal(self, host: str) -> str:
        """Why a connection from this address is refused; empty if it is not."""
        from_host = self._per_ip[host]
        if from_host >= self._overrides.get(host, self._config.max_connections_per_ip):
            return f"this address has {from_host} connections (max.connections.per.ip)"
        return ""

    def throttled_s(self, host: str, now: float) -> float:
        """How long to delay the refusal of a connection of this address, since they come too fast; 0 to take it."""
        addresses = self._addresses
        if not addresses:
            return 0.0
        per_s = addresses.get(host) or addresses.get(DEFAULT)
        if per_s is None:
            return 0.0
        meter = self._from_addresses.of(host, per_s, now * 1000)
        meter.add(1, now * 1000)
        excess_ms = min(meter.excess_ms(now * 1000), self._window.sample_ms)
        if excess_ms > 0:
            meter.add(-1, now * 1000)
        return excess_ms / 1000

    def opened(self, connection: Counted, listener: str, now: float) -> None:
        """Count one more; at the spared listener, it may have to be made room for."""
        self._connections[connection] = listener
        self._per_ip[connection.client_host] += 1
        self._of(listener).opened(now)
        if listener == self._spared:
            self._all.count += 1
            self._close_excess()
        else:
            self._all.opened(now)

    def closed(self, connection: Counted) -> None:
        """Count one less, and let waiting listeners accept."""
        listener = self._connections.pop(connection, None)
        if listener is None:
            return
        self._of(listener).count -= 1
        self._all.count -= 1
        self._per_ip[connection.client_host] -= 1
        if not self._per_ip[connection.client_host]:
            del self._per_ip[connection.client_host]
        self._wake()

    def _close_excess(self) -> None:
        self._close_silent(
            [connection for connection, listener in self._connections.items() if listener != self._spared],
            self._all.excess,
        )

    def _close_silent(self, connections: list[Counted], excess: int) -> None:
        if excess <= 0:
            return
        for connection in sorted(connections, key=lambda connection: connection.last_active)[:excess]:
            log.warning("closing %s: there are too many connections (max.connections)", connection.describe())
            connection.close()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for accept in waiting:
            accept()


def follow_settings(limits: ConnectionLimits, metadata: "MetadataView", loop: asyncio.AbstractEventLoop) -> None:
    """Have the limits follow settings that are changed while the broker runs; host names are looked up in a thread."""
    applied: list[BrokerConfig] = []

    def changed(*_: object) -> None:
        config = metadata.config
        if applied and applied[-1] is config:
            return
        applied[:] = [config]
        if not config.max_connections_per_ip_overrides:
            limits.change(config, {})
            return
        lookup = loop.run_in_executor(None, limits.resolved, config.max_connections_per_ip_overrides)
        lookup.add_done_callback(lambda done: apply(config, done))

    def apply(config: "BrokerConfig", found: "asyncio.Future[dict[str, int]]") -> None:
        if found.cancelled() or applied[-1] is not config:
            return
        problem = found.exception()
        if problem is None:
            limits.change(config, found.result())
        else:
            log.error("%s; the limits of connections stay as they were", problem)

    metadata.subscribe(changed)
    if metadata.config is not metadata.static_config:
        changed()
