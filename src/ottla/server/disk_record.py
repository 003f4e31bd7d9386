"""What the cluster remembers of a broker's log directories, so that a replaced disk is not taken for the one before.

    /ottla/log_directories/3   {"version":1,"directories":{"<directory.id>":7}}
    ottla.generation           7                    in each directory: it has been taken into use so often

A directory that is recorded and not there, or there with a lower number (an old copy), puts this broker in doubt: what
is missing or old does not lead and is not in sync (`ReplicaManager.become`) until everything has been copied again.
Genuine Kafka reads neither.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.errors import OttlaError
from ottla.ids import BrokerId
from ottla.log.directories import LogDirectories
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, MetadataStore, Node, StoreConflict, Update

log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 1.0


class DiskRecord:
    """Owned by one broker in a cluster. On the loop's thread."""

    def __init__(self, store: MetadataStore, broker_id: BrokerId, directories: LogDirectories) -> None:
        self._store = store
        self._path = layout.log_directories_path(broker_id)
        self._directories = directories

    @property
    def is_in_doubt(self) -> bool:
        """Is a directory missing, or an old copy of what this broker had?"""
        return self._directories.is_in_doubt

    async def check(self) -> None:
        """Compare the directories, which have been acquired, with the record, and record this start.

        Raises `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
        """
        node = await self._read()
        recorded = layout.read_log_directories(node)
        self._directories.compare(recorded)
        await self._write(node, self._directories.take_into_use(recorded))

    async def trust_in_the_end(self, holds_everything: Callable[[], bool]) -> None:
        """Record the directories as they are, once this broker has filled all its replicas again."""
        while self.is_in_doubt:
            await asyncio.sleep(POLL_INTERVAL_S)
            if not self._directories.all_online or not holds_everything():
                continue
            try:
                node = await self._read()
                recorded = layout.read_log_directories(node)
                await self._write(node, self._directories.take_into_use(recorded, trusted=True))
            except OttlaError as problem:
                log.warning("the log directories cannot be recorded now: %s", problem)
                continue
            self._directories.trust()
            log.info("everything that was lost with a disk has been copied from other brokers, or given up")

    async def _read(self) -> Node | None:
        return (await self._store.read(self._path)).get(self._path)

    async def _write(self, node: Node | None, generations: dict[str, int]) -> None:
        data = layout.log_directories_node(generations)
        if node is not None and node.data == data:
            return
        try:
            await self._store.commit(
                [Create(self._path, data) if node is None else Update(self._path, data, node.version)]
            )
        except StoreConflict:
            written = await self._read()  # by a transaction whose answer was lost
            if written is None or written.data != data:
                raise
