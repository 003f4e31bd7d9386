"""How many connections there may be, on all listeners together: in all, from one address, and new ones per second.

As in Kafka (`ConnectionQuotas`): a broker that is full, or whose connections come too fast, accepts none until there
is room, and new connections wait in the system's queue; an address that has its share is refused. The listener
between brokers is spared where clients have another one: a connection there takes the place of the
one elsewhere that was silent for the longest time.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView

log = logging.getLogger(__name__)

OVERRIDES: Final = "max.connections.per.ip.overrides"
LONGEST_WAIT_S: Final = 1.0


class Counted(Protocol):
    """A connection, as far as it is counted."""

    client_host: str
    last_active: float

    def close(self) -> None: ...

    def describe(self) -> str: ...


def addresses_of(host: str) -> set[str]:
    """The addresses of a host name, as text. Raises OSError."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


class ConnectionLimits:
    """Counts the connections of all listeners of a broker. On the loop's thread, but for `resolved`."""

    def __init__(self, config: "BrokerConfig", *, resolve: Callable[[str], set[str]] = addresses_of) -> None:
        """Raises InvalidConfig if a host in max.connections.per.ip.overrides has no address."""
        self._resolve = resolve
        self._config = config
        self._spared = config.inter_broker_listener if len(config.listeners) > 1 else None
        self._connections: dict[Counted, str] = {}
        self._per_ip: Counter[str] = Counter()
        self._waiting: dict[Callable[[], None], None] = {}
        self._tokens = float(config.max_connection_creation_rate)
        self._tokens_at = 0.0
        self._overrides = self.resolved(config.max_connections_per_ip_overrides)

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
        """Apply other settings from now on; `overrides` by address. Connections past the limit are closed, those that
        were silent for the longest time first."""
        self._config, self._overrides = config, overrides
        self._spared = config.inter_broker_listener if len(config.listeners) > 1 else None
        self._close_excess()
        self._wake()

    # -- accepting ---------------------------------------------------------------------------------------------------

    def wait_s(self, listener: str, now: float) -> float | None:
        """How long to accept nothing at this listener: 0 for now, None until `when_room` is called."""
        if listener == self._spared:
            return 0.0
        if len(self._connections) >= self._config.max_connections:
            return None
        rate = self._config.max_connection_creation_rate
        if rate <= 0:
            return LONGEST_WAIT_S
        self._tokens = min(float(rate), self._tokens + (now - self._tokens_at) * rate)
        self._tokens_at = now
        return 0.0 if self._tokens >= 1 else min((1 - self._tokens) / rate, LONGEST_WAIT_S)

    def when_room(self, accept: Callable[[], None]) -> None:
        """Call `accept` once, when there may be room."""
        self._waiting[accept] = None

    def refusal(self, host: str) -> str:
        """Why a connection from this address is refused; empty if it is not."""
        from_host = self._per_ip[host]
        if from_host >= self._overrides.get(host, self._config.max_connections_per_ip):
            return f"this address has {from_host} connections (max.connections.per.ip)"
        return ""

    def opened(self, connection: Counted, listener: str) -> None:
        """Count one more; at the spared listener, it may have to be made room for."""
        self._connections[connection] = listener
        self._per_ip[connection.client_host] += 1
        if listener == self._spared:
            self._close_excess()
        else:
            self._tokens -= 1

    def closed(self, connection: Counted) -> None:
        """Count one less, and let waiting listeners accept."""
        if self._connections.pop(connection, None) is None:
            return
        self._per_ip[connection.client_host] -= 1
        if not self._per_ip[connection.client_host]:
            del self._per_ip[connection.client_host]
        if len(self._connections) < self._config.max_connections:
            self._wake()

    def _close_excess(self) -> None:
        excess = len(self._connections) - self._config.max_connections
        if excess <= 0:
            return
        others = [connection for connection, listener in self._connections.items() if listener != self._spared]
        for connection in sorted(others, key=lambda connection: connection.last_active)[:excess]:
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
