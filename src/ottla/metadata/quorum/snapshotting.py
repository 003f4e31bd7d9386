"""Writes snapshots of the metadata log when they are due, and deletes what the newer ones stand for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.metadata.quorum.metadata_log import MetadataLog, MetadataLogConfig
from ottla.quorum.machine import QuorumMachine
from ottla.quorum.replicas import OffsetAndEpoch
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

CLEAN_INTERVAL_S: Final = 60.0
RETRY_INTERVAL_S: Final = 60.0
"""After a snapshot that could not be written."""
RECORDS_AT_ONCE: Final = 500
"""Records of a snapshot that are made in one turn of the loop."""

InThread = Callable[..., Awaitable[Any]]
"""Calls its first argument with the others in a thread."""


class Snapshotting:
    """The snapshots of one node. On the loop's thread."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        machine: QuorumMachine,
        config: MetadataLogConfig,
        syncing: asyncio.Lock,
        in_thread: InThread,
        tasks: Tasks,
    ) -> None:
        """`syncing` is held while the log is being synced."""
        self._log = metadata_log
        self._machine = machine
        self._config = config
        self._syncing = syncing
        self._in_thread = in_thread
        self._tasks = tasks
        self._is_writing = False
        self._written_at_s = metadata_log.clock.monotonic()
        self._retry_at_s: float | None = None
        """When the next one is due after a failure."""

    def is_due(self, bytes_since: int) -> bool:
        """Whether a snapshot should be written after so many bytes of the log."""
        if self._is_writing:
            return False
        if self._retry_at_s is not None:
            return self._log.clock.monotonic() >= self._retry_at_s
        interval_s = self._config.snapshot_interval_ms / 1000
        return bytes_since >= self._config.bytes_between_snapshots or bool(
            interval_s and self._log.clock.monotonic() - self._written_at_s >= interval_s
        )

    def begin(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """Write a snapshot in the background."""
        self._is_writing = True
        self._tasks.spawn(self._write_due(at, records), f"snapshot of the metadata log at {at.offset}")

    async def _write_due(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        try:
            await self.write(at, records)
        except (OSError, OttlaError) as problem:
            # The log still has everything: nothing is lost but room on the disk, and the next one is tried.
            self._retry_at_s = self._log.clock.monotonic() + RETRY_INTERVAL_S
            log.error("cannot write a snapshot in %s: %s; it is tried again", self._log.directory, problem)
        finally:
            self._is_writing = False

    async def write_last(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """Write a snapshot before the node ends, unless one is being written; that it fails is noted only."""
        if not self._is_writing:
            self._is_writing = True
            await self._write_due(at, records)

    async def write(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """See `QuorumNode.write_snapshot`. Raises OSError, KafkaStorageError, and what `records` raises."""
        newest = self._log.newest_snapshot
        if newest is not None and newest.offset >= at.offset:
            return
        self._written_at_s = self._log.clock.monotonic()
        writer = await self._in_thread(self._log.new_snapshot, at, self._machine.voter_records(at.offset))
        try:
            rest = iter(records)
            while some := list(islice(rest, RECORDS_AT_ONCE)):
                await self._in_thread(writer.add_all, some)
            size = await self._in_thread(writer.finish)
        except BaseException:
            writer.discard()
            raise
        self._retry_at_s = None
        async with self._log.lock:
            self._log.has_written(at, size)
            self._machine.log_cleaned()
        log.info("wrote a snapshot of the metadata log at offset %d: %d bytes", at.offset, size)
        await self._delete_old()

    async def clean(self) -> None:
        """Delete what is old, again and again."""
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_S)
            await self._delete_old()

    async def _delete_old(self) -> None:
        try:
            async with self._log.lock, self._syncing:
                remove = await self._in_thread(self._log.clean)
                self._machine.log_cleaned()
            if remove is not None:
                await self._in_thread(remove)
        except (OSError, OttlaError) as problem:
            log.error("cannot delete old files of the metadata log in %s: %s", self._log.directory, problem)
