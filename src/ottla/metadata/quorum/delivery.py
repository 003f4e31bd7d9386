"""Gives committed metadata records to one listener, in the order of the log.

    log   | snapshot ... |------ batches ------| high watermark |--- not committed ---
          next offset of the listener: moves on with what it is given

A listener that needs records below the start of the log gets the newest snapshot in their place. A listener learns that
its own node leads only when it has everything of earlier epochs.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

from ottla.errors import OffsetOutOfRange
from ottla.log.fs import FileSystem
from ottla.log.reader import ColdRead
from ottla.metadata.quorum import snapshots
from ottla.metadata.quorum.metadata_log import MetadataLog
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, Listener, SnapshotRecords
from ottla.quorum.replicas import OffsetAndEpoch
from ottla.records.batch import BatchHeader, Buffer, iter_batches
from ottla.records.record import decode_values
from ottla.slices import Slices

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 18
_RECORDS_AT_ONCE: Final = 200
"""Records of small batches that a listener is given at once; a larger batch is given as it is."""


class Host(Protocol):
    """The node, as its deliveries see it."""

    @property
    def high_watermark(self) -> int | None: ...

    def delivered(self) -> None:
        """A listener has received more."""

    def snapshot_is_due(self, bytes_since: int) -> bool:
        """Whether a snapshot should be written after so many bytes."""

    def begin_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        """Write a snapshot in the background."""

    def fail(self, problem: BaseException) -> None:
        """The node cannot go on."""


class _Leader(NamedTuple):
    """A leader that is still to be announced, and the offset up to which everything has to be delivered before."""

    leader: LeaderAndEpoch
    after: int


class Delivery:
    """One listener and its place in the log. On the loop's thread."""

    def __init__(
        self,
        listener: Listener,
        metadata_log: MetadataLog,
        fs: FileSystem,
        host: Host,
        threads: Executor,
        snapshot_records: SnapshotRecords | None,
    ) -> None:
        self.next_offset = 0
        """All below was delivered."""
        self._listener = listener
        self._log = metadata_log
        self._fs = fs
        self._host = host
        self._threads = threads
        self._snapshot_records = snapshot_records
        self._slices = Slices(metadata_log.clock)
        self._bytes_since_snapshot = 0
        self._delivered: OffsetAndEpoch | None = None
        """Where the last batch ended that was delivered."""
        self._is_new = True
        self._leader: _Leader | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be more to deliver."""
        self._woken.set()

    def leader_changed(self, leader: LeaderAndEpoch, after: int) -> None:
        """Announce a leader once everything below `after` is delivered; 0: now."""
        self._leader = _Leader(leader, after)
        if not after or self.next_offset >= after:
            self._announce()

    def _announce(self) -> None:
        if self._leader is not None and self.next_offset >= self._leader.after:
            leader, self._leader = self._leader.leader, None
            self._listener.handle_leader_change(leader)

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                await self._catch_up()
                await self._woken.wait()
                self._woken.clear()
        except Exception as problem:
            self._host.fail(problem)

    async def _catch_up(self) -> None:
        while True:
            newest = self._log.newest_snapshot
            if newest is not None and (self._is_new or self.next_offset < self._log.start_offset):
                await self._deliver_snapshot(newest)
            self._is_new = False
            committed = self._host.high_watermark or 0
            if self.next_offset >= committed:
                return
            try:
                batches = await self._read(committed)
            except OffsetOutOfRange:
                if self.next_offset < self._log.start_offset:
                    continue  # a snapshot has taken its place meanwhile
                raise
            await self._deliver(batches, committed)

    async def _deliver_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        loop = asyncio.get_running_loop()
        path = self._log.snapshot_path(snapshot)
        try:
            records = await loop.run_in_executor(self._threads, lambda: list(snapshots.read_records(self._fs, path)))
        except FileNotFoundError:
            if self._log.newest_snapshot == snapshot:
                raise
            return  # there is a newer one
        steps = self._listener.handle_snapshot(snapshot, records)
        if steps is not None:
            await self._slices.run(steps)
        self.next_offset = snapshot.offset
        self._bytes_since_snapshot = 0
        self._moved()

    async def _read(self, committed: int) -> Buffer:
        async with self._log.lock:
            found = self._log.read(self.next_offset, _READ_BYTES, upper_bound=committed)
        if not isinstance(found, ColdRead):
            return found
        loop = asyncio.get_running_loop()
        return (await loop.run_in_executor(self._threads, found.run)).data

    async def _deliver(self, batches: Buffer, committed: int) -> None:
        for group, size_bytes in _groups(memoryview(batches), self.next_offset, committed):
            if group.records:
                self._listener.handle_commit(group)
            self.next_offset = group.last_offset + 1
            self._bytes_since_snapshot += size_bytes
            self._moved()
            self._delivered = OffsetAndEpoch(self.next_offset, group.epoch)
            self._offer_snapshot(self._delivered)
            await self._slices.pause()

    def _moved(self) -> None:
        self._announce()
        self._host.delivered()

    def last_snapshot(self, least_bytes: int) -> tuple[OffsetAndEpoch, Iterable[bytes]] | None:
        """A snapshot of what was delivered: where it stands, and its records. None if the listener has none to give, or
        the log since the last one has fewer bytes."""
        at = self._delivered
        if at is None or self._snapshot_records is None or self._bytes_since_snapshot < least_bytes:
            return None
        records = self._snapshot_records()
        return None if records is None else (at, records)

    def _offer_snapshot(self, at: OffsetAndEpoch) -> None:
        if self._snapshot_records is None or not self._host.snapshot_is_due(self._bytes_since_snapshot):
            return
        records = self._snapshot_records()
        if records is not None:
            self._bytes_since_snapshot = 0
            self._host.begin_snapshot(at, records)


def _groups(view: memoryview, start: int, committed: int) -> Iterator[tuple[CommittedBatch, int]]:
    """The batches from an offset on that are committed, and their sizes in bytes: neighbours of one epoch as one.

    A listener does not notice how records were appended. A log of ten thousand small batches is replayed at the cost of
    its records, not of ten thousand images.
    """
    waiting: list[BatchHeader] = []
    records: list[bytes] = []
    for header in iter_batches(view, allow_partial_end=True):
        if header.next_offset <= start:
            continue
        if header.next_offset > committed:
            break
        found = [] if header.is_control else [value or b"" for value in decode_values(view, header)]
        if waiting and not _belongs(header, waiting[0], len(records) + len(found)):
            yield _group(waiting, records)
            waiting, records = [], []
        waiting.append(header)
        records += found
    if waiting:
        yield _group(waiting, records)


def _belongs(header: BatchHeader, first: BatchHeader, records: int) -> bool:
    if header.is_control or first.is_control or header.leader_epoch != first.leader_epoch:
        return False
    return records <= _RECORDS_AT_ONCE


def _group(headers: Sequence[BatchHeader], records: Sequence[bytes]) -> tuple[CommittedBatch, int]:
    first, last = headers[0], headers[-1]
    batch = CommittedBatch(first.base_offset, last.last_offset, last.leader_epoch, last.max_timestamp, records)
    return batch, sum(header.size_bytes for header in headers)


def lowest(deliveries: Sequence[Delivery], otherwise: int) -> int:
    """The offset below which all listeners have received everything."""
    return min((each.next_offset for each in deliveries), default=otherwise)
