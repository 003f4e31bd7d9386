"""Whether this broker still holds its leadership: its session lives, and no controller has fenced it.

    controller: address refuses connections -- changes the broker's node, then elects others
    broker:     my node was changed  -- fenced, as without a session, until a controller sends its partitions (it asks)

A mistaken controller cannot notify the broker that others lead (ADR 16); the store can.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.errors import OttlaError
from ottla.ids import BrokerId
from ottla.metadata.store import layout
from ottla.metadata.store.base import Check, MetadataStore, Update
from ottla.tasks import supervised

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2


def node_of(broker_id: BrokerId) -> str:
    """The path at which a broker is registered."""
    return f"{layout.BROKERS_PATH}/{broker_id}"


async def fence(store: MetadataStore, broker_id: BrokerId, epoch_version: int) -> None:
    """Let a broker know that others are about to lead; nothing happens if its session has ended meanwhile.

    `epoch_version` is that of the node with the controller's epoch. Raises `StoreConflict`, `StoreUnavailable`.
    """
    path = node_of(broker_id)
    node = (await store.read(path)).get(path)
    if node is not None:
        await store.commit([Check(layout.CONTROLLER_EPOCH_PATH, epoch_version), Update(path, node.data, node.version)])


class LeadershipLease:
    """The leadership lease of one broker. On the loop's thread."""

    def __init__(self, store: MetadataStore, broker_id: BrokerId, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._broker_id = broker_id
        self._path = node_of(broker_id)
        self._loop = loop
        self._changed = asyncio.Event()
        self._end_watch: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._known = (0, 0)
        """The node as it was seen last: the transaction that made it, and how often it has been changed."""
        self._ends_at = float("inf")
        self.is_fenced = False

    def start(self) -> None:
        """Look after the node, which has just been made."""
        self._end_watch = self._store.watch(self._path, self._changed.set)
        self._task = supervised(self._loop, self._run(), "leadership lease")

    async def close(self) -> None:
        """Stop watching the session, and wait for the task to end."""
        if self._end_watch is not None:
            self._end_watch()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def holds(self) -> bool:
        """Whether certainly no other broker has been elected at this moment."""
        return not self.is_fenced and self._store.holds_session() and self._loop.time() < self._ends_at

    def end_after(self, seconds: float) -> None:
        """End it after this time, counted from the first call: another broker may be elected elsewhere than in the
        store."""
        self._ends_at = min(self._ends_at, self._loop.time() + seconds)

    def unfence(self) -> None:
        """A controller has sent the partitions that this broker leads."""
        if self.is_fenced:
            log.info("the controller speaks to this broker again")
            self.is_fenced = False

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except OttlaError as problem:
                log.info("%s; it will be looked at again", problem)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def _look(self) -> None:
        node = (await self._store.read(self._path)).get(self._path)
        if node is None or not node.is_own:
            return  # of a session that has ended: in the next one, the controller speaks first
        made, changes = self._known
        if node.version > (changes if node.created == made else 0):
            log.warning("the controller could not reach this broker, and has others lead what it has led")
            self.is_fenced = True
            # Should it have changed its mind meanwhile, it would have nothing to say.
            await self._store.commit([layout.log_directory_failure(self._broker_id)])
        self._known = (node.created, node.version)
