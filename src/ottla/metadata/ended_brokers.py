"""Finds brokers whose process has ended, long before their sessions have.

    the connection of a broker's heartbeats breaks ──▶ all of its addresses refuse connections, twice ──▶ it has ended

An address that refuses is no address that does not answer: the machine is there, and nothing listens. A broker that is
alive after all is fenced for a moment, learns it from its next heartbeat, and is unfenced (ADR 16).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ottla.client.sockets import Connect
from ottla.cluster.image import BrokerImage
from ottla.ids import BrokerId
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

LOOKS: Final = 2
LOOK_AGAIN_S: Final = 0.1
"""One refusal may meet a broker that is rebinding its port."""
LOOKS_IN_A_MOVE: Final = 10
"""A broker that goes from ZooKeeper to the quorum closes its ports meanwhile; its heartbeats show that it is alive."""
TIMEOUT_S: Final = 1.0
MOST_CONNECTIONS: Final = 10_000


class EndedBrokers:
    """The connections over which heartbeats come. On the loop's thread."""

    def __init__(
        self,
        reach: Connect,
        brokers: Callable[[], Mapping[BrokerId, BrokerImage]],
        ended: Callable[[BrokerId, int], Awaitable[None]],
        *,
        looks: int = LOOKS,
    ) -> None:
        """`brokers` are those that are not fenced; `ended` gets the number and the epoch of one that has ended;
        `looks` refusals in a row show that."""
        self._looks = looks
        self._reach = reach
        self._brokers = brokers
        self._ended = ended
        self._connections: dict[int, tuple[BrokerId, int]] = {}
        self._newest: dict[BrokerId, int] = {}
        self._tasks = Tasks()

    def note_heartbeat(self, connection_id: int, broker_id: BrokerId, epoch: int) -> None:
        """A heartbeat of a broker's epoch has come over a connection."""
        if self._newest.get(broker_id) == connection_id and connection_id in self._connections:
            self._connections[connection_id] = broker_id, epoch
        elif len(self._connections) < MOST_CONNECTIONS:
            self._connections[connection_id] = broker_id, epoch
            self._newest[broker_id] = connection_id

    def disconnected(self, connection_id: int) -> None:
        """A connection is closed; look for its broker if it was the last one of its heartbeats."""
        broker_id, epoch = self._connections.pop(connection_id, (None, -1))
        if broker_id is None or self._newest.get(broker_id) != connection_id:
            return
        del self._newest[broker_id]
        broker = self._brokers().get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._tasks.spawn(self._look(broker), "search for a broker that has hung up")

    def begin_term(self) -> None:
        """Look for all brokers but those that send heartbeats soon: the last leader may have ended with its broker."""
        self._connections.clear()
        self._newest.clear()
        for broker in self._brokers().values():
            self._tasks.spawn(self._look(broker), "search for a broker at the beginning of a term")

    async def close(self) -> None:
        """Look for no broker any longer."""
        await self._tasks.close()

    async def _look(self, broker: BrokerImage) -> None:
        for _ in range(self._looks):
            await asyncio.sleep(LOOK_AGAIN_S)
            if broker.broker_id in self._newest or not await self._is_refused(broker):
                return
        if self._brokers().get(broker.broker_id) == broker:
            log.info("broker %d has ended: its addresses refuse connections", broker.broker_id)
            await self._ended(broker.broker_id, broker.epoch)

    async def _is_refused(self, broker: BrokerImage) -> bool:
        """Whether all of a broker's addresses refuse connections."""
        for host, port in broker.endpoints.values():
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    stream = await self._reach(host, port)
            except ConnectionRefusedError:
                continue
            except OSError:  # a timeout is one, too
                return False
            stream.close()
            return False
        return bool(broker.endpoints)
