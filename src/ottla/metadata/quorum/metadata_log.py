"""The files of the metadata log, `__cluster_metadata-0`: its segments, its snapshots, and what is deleted of them.

    <metadata.log.dir>/__cluster_metadata-0/00000000000000000000.log, .index, .timeindex     as any partition's
                                            leader-epoch-checkpoint, partition.metadata
                                            quorum-state                                     `election_file`
                                            00000000000000000042-0000000003.checkpoint       `snapshots`

Kafka's files, byte for byte (`KafkaMetadataLog` of Kafka 4.3). As Kafka does, a start checks every batch, and cuts the
log at the first torn one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.clock import Clock
from ottla.config.log import UNLIMITED, LogConfig
from ottla.errors import CorruptMessage, KafkaStorageError
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.flush import FlushTicket
from ottla.log.fs import LACKS_ROOM, FileSystem, keep_spare
from ottla.log.names import METADATA_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.log.scan import scan
from ottla.metadata.quorum import snapshots
from ottla.metadata.quorum.batches import MAX_BATCH_BYTES
from ottla.metadata.quorum.election_file import QUORUM_STATE
from ottla.metadata.quorum.snapshots import SnapshotWriter, file_name
from ottla.quorum.effects import ControlRecord
from ottla.quorum.replicas import EMPTY_LOG, OffsetAndEpoch
from ottla.records.batch import Buffer, iter_batches

log = logging.getLogger(__name__)

METADATA_PARTITION: Final = TopicPartition(TopicName(METADATA_TOPIC), PartitionId(0))
METADATA_TOPIC_ID: Final = TopicId(UUID(int=1))
"""AAAAAAAAAAAAAAAAAAAAAQ, in every cluster."""
DIRECTORY: Final = f"{METADATA_TOPIC}-0"
_READ_BYTES: Final = 1 << 20
ROOM_BYTES: Final = 4 << 20
"""How much room is reserved for the next records at a time: an idle quorum fills it in half a day."""
LEAST_ROOM_BYTES: Final = 1 << 20
"""More is reserved when less is left; and a segment begins with so much, or the one before grows on."""


@dataclass(frozen=True, slots=True)
class MetadataLogConfig:
    """The settings `metadata.log.*` and `metadata.max.retention.*`, with Kafka's defaults; milliseconds and bytes."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 << 20
    """To this size snapshots and segments below the newest snapshot are deleted; -1: never for their size."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    bytes_between_snapshots: int = 20 << 20
    snapshot_interval_ms: int = 3600 * 1000
    """The longest time between two snapshots while anything is written; 0: no limit."""

    def of_log(self) -> LogConfig:
        """The settings of the partition: nothing is deleted but below a snapshot."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            retention_ms=UNLIMITED,
            retention_bytes=UNLIMITED,
            max_message_bytes=MAX_BATCH_BYTES,
        )


class MetadataLog:
    """The log and its snapshots: the `LogView` of the quorum's state machine, and how its effects are carried out.

    Used on the loop's thread, except by the methods that name another. `lock` is held by each user of the log, so that
    nobody else touches it while a thread changes its files.
    """

    def __init__(
        self,
        directory: str,
        config: MetadataLogConfig,
        fs: FileSystem,
        clock: Clock,
        partition_log: PartitionLog,
        whole: dict[OffsetAndEpoch, int],
    ) -> None:
        """Use `open`."""
        self.directory = directory
        self.config = config
        self.lock = asyncio.Lock()
        """Held by each user of the log."""
        self._fs = fs
        self.clock = clock
        self._log = partition_log
        self._snapshots = whole
        self._partial: tuple[OffsetAndEpoch, int] | None = None
        """The snapshot that is being fetched, and how many bytes of it are there."""
        self._reserved = 0, 0
        """For which segment there is room, by its base offset, and up to which size."""

    @classmethod
    def open(cls, log_dir: str, config: MetadataLogConfig, *, fs: FileSystem, clock: Clock) -> "MetadataLog":
        """Open or create the log in `metadata.log.dir`; everything it holds then is on the disk. In any thread.

        Raises KafkaStorageError for files that contradict each other, InconsistentTopicId, OSError.
        """
        directory = f"{log_dir}/{DIRECTORY}"
        partition_log = PartitionLog.open(
            Path(directory), METADATA_PARTITION, config.of_log(), fs=fs, clock=clock, topic_id=METADATA_TOPIC_ID
        )
        found = snapshots.find(fs, directory)
        opened = cls(directory, config, fs, clock, partition_log, dict(sorted(found.whole.items())))
        opened._recover(found.leftovers)
        return opened

    def _recover(self, leftovers: Iterable[str]) -> None:
        """Bring log and snapshots together, as a crash may have left them."""
        # The process before may have been killed before it synced the name of a snapshot, for which the log is emptied
        # now, or of its vote, which is not written again.
        self._fs.sync_directory(self.directory)
        for name in leftovers:
            snapshots.remove_quietly(self._fs, f"{self.directory}/{name}")
        newest = self.newest_snapshot
        start = self._log.log_start_offset
        if newest is None or newest.offset < start:
            if start > 0:
                raise KafkaStorageError(
                    f"{self.directory} begins at offset {start}, and no snapshot holds what was before: restore the "
                    "files *.checkpoint; or remove the directory, and let this node fetch everything from the quorum"
                )
        elif (newest.epoch, newest.offset) > (max(self._log.latest_epoch, 0), self._log.log_end_offset):
            # It was fetched, and the log was to begin behind it.
            self._log.truncate_fully_and_start_at(Offset(newest.offset))
        self._remove(self._forget([old for old in self._snapshots if old.offset < self._log.log_start_offset]))
        self._log.flush()
        self._reserve_all()

    # --- as the state machine reads it -------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """See `LogView`."""
        return self._log.log_start_offset

    @property
    def end(self) -> OffsetAndEpoch:
        """See `LogView`."""
        end, epoch = self._log.log_end_offset, self._log.latest_epoch
        if epoch >= 0:
            return OffsetAndEpoch(end, epoch)
        newest = self.newest_snapshot
        return EMPTY_LOG if newest is None else OffsetAndEpoch(end, newest.epoch)

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """See `LogView`."""
        end = self.end
        if epoch >= end.epoch:
            return end
        found = self._log.end_offset_for_epoch(LeaderEpoch(epoch))
        oldest = self.oldest_snapshot
        if found.epoch < 0 or found.end_offset <= self.start_offset:
            if oldest is not None and oldest.offset == self.start_offset and epoch >= oldest.epoch:
                return OffsetAndEpoch(self.start_offset, oldest.epoch)
            return OffsetAndEpoch(self.start_offset, epoch)
        return OffsetAndEpoch(found.end_offset, found.epoch)

    @property
    def newest_snapshot(self) -> OffsetAndEpoch | None:
        """See `LogView`."""
        return max(self._snapshots, default=None)

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None:
        """See `LogView`."""
        return min(self._snapshots, default=None)

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        """See `LogView`."""
        return self._snapshots.get(snapshot)

    def control_batches(self) -> Iterator[tuple[int, memoryview]]:
        """See `LogView`. Reads files."""
        newest = self.newest_snapshot
        if newest is not None:
            for batch in snapshots.check(self._fs, self.snapshot_path(newest)).control_batches:
                yield -1, memoryview(batch)
        for segment in self._log.segments:
            for header in scan(segment.file, segment.path, 0, segment.size, check_crc=False):
                if header.is_control and header.last_offset >= self.start_offset:
                    yield header.base_offset, memoryview(segment.file.read(header.position, header.size_bytes))

    # --- reads -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, at_least_one: bool = True) -> Buffer | ColdRead:
        """Whole batches from `offset` on, `at_least_one` even if it is larger; a `ColdRead` has to be run in a thread.

        Raises OffsetOutOfRange, CorruptMessage, KafkaStorageError.
        """
        found = self._log.read(offset, max_bytes, upper_bound=upper_bound, min_one_message=at_least_one)
        return found if isinstance(found, ColdRead) else found.data

    def read_blocking(self, offset: int, max_bytes: int, *, upper_bound: int) -> Buffer:
        """As `read`, in any thread."""
        return self._log.read_blocking(offset, max_bytes, upper_bound=upper_bound, min_one_message=True).data

    def snapshot_path(self, snapshot: OffsetAndEpoch) -> str:
        """The file of a whole snapshot."""
        return f"{self.directory}/{file_name(snapshot)}"

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> Buffer:
        """Bytes of a whole snapshot; in any thread. Raises OSError: FileNotFoundError once it has been deleted."""
        return self._fs.open(self.snapshot_path(snapshot)).read(position, max_bytes)

    # --- appends -----------------------------------------------------------------------------------------------

    def append(self, batches: Buffer, base_offset: int) -> int:
        """Append whole batches; returns the new end. They are not on the disk before the next `sync`.

        Raises CorruptMessage, OffsetOutOfRange, KafkaStorageError.
        """
        if base_offset != self._log.log_end_offset:
            raise KafkaStorageError(
                f"{self.directory} ends at offset {self._log.log_end_offset}; records at {base_offset} do not follow"
            )
        self._log.append_as_follower(batches)
        self._reserve()
        return self._log.log_end_offset

    def _reserve(self) -> None:
        """Have room for the next records, also when partitions in other directories of the disk have filled it: what
        they need then comes by this log, as does the word that other brokers lead."""
        segment = self._log.segments[-1]
        if (segment.base_offset, segment.size + LEAST_ROOM_BYTES) > self._reserved:
            size = segment.size + ROOM_BYTES
            if segment.file.reserve(size):
                self._reserved = segment.base_offset, size

    def _reserve_all(self) -> None:
        """The first room after a start, with that for what an election rewrites."""
        self._log.reserve_room(LEAST_ROOM_BYTES)
        self._reserve()
        if not self._reserved[1] or not keep_spare(self._fs, f"{self.directory}/{QUORUM_STATE}", 0):
            log.warning(
                "the disk of %s is full, and has no room for what the quorum may have to write there: the next "
                "election may end this node; make room",
                self.directory,
            )

    def _reserve_anew(self) -> None:
        """As `_reserve`, after a truncation, which gives back what was reserved."""
        self._reserved = 0, 0
        self._reserve()

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._log.size_bytes

    def note_committed(self, high_watermark: int) -> None:
        """All records below are committed: what a snapshot holds of them may be deleted."""
        self._log.high_watermark = Offset(high_watermark)

    def prepare_sync(self) -> FlushTicket | None:
        """See `PartitionLog.prepare_flush`."""
        return self._log.prepare_flush()

    def synced(self, ticket: FlushTicket) -> int:
        """After `ticket.sync()` in a thread: the offset below which everything is on the disk."""
        self._log.flushed(ticket)
        return self._log.recovery_point

    def sync_failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised."""
        self._log.flush_failed(ticket)

    # --- what waits for the disk: in a thread, with `lock` held ------------------------------------------

    def truncate(self, offset: int) -> None:
        """Remove all records from `offset` on; durable when this returns. Raises KafkaStorageError."""
        self._log.truncate_to(Offset(offset))
        self._reserve_anew()
        self._log.flush()

    def write_part(self, snapshot: OffsetAndEpoch, position: int, data: Buffer) -> None:
        """Write a piece of a snapshot that is fetched. Raises OSError; KafkaStorageError for a gap."""
        path = f"{self.directory}/{file_name(snapshot, snapshots.PART)}"
        file = self._fs.open(path, create=position == 0)
        if position == 0:
            file.truncate(0)
            self._partial = snapshot, 0
        if self._partial != (snapshot, position):
            raise KafkaStorageError(f"{path}: bytes at {position} do not follow what was fetched before")
        file.write(position, data)
        self._partial = snapshot, position + len(data)

    def drop_part(self, snapshot: OffsetAndEpoch) -> None:
        """Delete what was fetched of a snapshot."""
        self._partial = None
        snapshots.remove_quietly(self._fs, f"{self.directory}/{file_name(snapshot, snapshots.PART)}")

    def install(self, snapshot: OffsetAndEpoch) -> bool:
        """Check a fetched snapshot, make it durable, and begin the log behind it. False if it was damaged, and has been
        deleted, or was dropped before. Raises OSError, KafkaStorageError."""
        path = f"{self.directory}/{file_name(snapshot, snapshots.PART)}"
        if self._partial is None:
            return False
        try:
            snapshots.check(self._fs, path)
        except CorruptMessage as damaged:
            log.error("a snapshot that was fetched from the quorum's leader is not used: %s", damaged)
            self.drop_part(snapshot)
            return False
        file = self._fs.open(path)
        snapshots.seal(self._fs, self.directory, path, snapshot, file)
        self._partial = None
        older = [old for old in self._snapshots if old < snapshot]
        self._snapshots = {**self._snapshots, snapshot: file.size()}
        self._log.truncate_fully_and_start_at(Offset(snapshot.offset))
        self._reserve_anew()
        self._log.flush()
        self._remove(self._forget(older))
        return True

    # --- snapshots of this node's own ---------------------------------------------------------------------------

    def append_time_before(self, at: OffsetAndEpoch) -> int:
        """When the last record below a position in the log was appended, in milliseconds. In any thread.

        Raises KafkaStorageError if the log has no such position.
        """
        if at.offset > self.start_offset:
            batches = self.read_blocking(at.offset - 1, 1, upper_bound=self.end.offset)
            for header in iter_batches(batches):
                if header.base_offset < at.offset <= header.next_offset and header.leader_epoch == at.epoch:
                    return header.max_timestamp
        raise KafkaStorageError(f"{self.directory} has no position {at}, and can have no snapshot of it")

    def new_snapshot(self, at: OffsetAndEpoch, of_voters: Sequence[ControlRecord]) -> SnapshotWriter:
        """Begin a snapshot at a position in the log, with the records that name the voters there. In any thread.

        Raises OSError, KafkaStorageError.
        """
        return SnapshotWriter(
            self._fs,
            self.directory,
            at,
            last_append_time_ms=self.append_time_before(at),
            of_voters=of_voters,
            now_ms=self.clock.now_ms(),
        )

    def has_written(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """A snapshot of this node's own is on the disk."""
        self._snapshots = {**self._snapshots, snapshot: size}

    def clean(self) -> Callable[[], None] | None:
        """Take out old snapshots, and the segments below those that stay, as `metadata.max.retention.*` say. Returns
        the removal of their files, which needs no lock; None if nothing is old.

        The newest snapshot stays, and so does everything behind it. Raises OSError, KafkaStorageError.
        """
        now_ms = self.clock.now_ms()
        kept = sorted(self._snapshots)
        total = self._log.size_bytes + sum(self._snapshots.values())
        oldest_kept: OffsetAndEpoch | None = None
        for old, following in pairwise(kept):
            is_large = self.config.retention_bytes >= 0 and total > self.config.retention_bytes
            if not is_large and not self._is_old(old, now_ms):
                break
            total -= self._snapshots[old]
            oldest_kept = following
        return None if oldest_kept is None else self.begin_at(oldest_kept)

    def begin_at(self, snapshot: OffsetAndEpoch) -> Callable[[], None] | None:
        """Let the log begin at a snapshot; the removal of what was before it. Raises OSError, KafkaStorageError."""
        if snapshot.offset > self._log.high_watermark:
            return None  # it is not known yet to be committed
        self._log.delete_records_before(Offset(snapshot.offset))
        deletion = self._log.apply_retention(self.clock.now_ms())
        gone = self._forget([old for old in self._snapshots if old < snapshot])
        self._fs.sync_directory(self.directory)

        def remove() -> None:
            if deletion is not None:
                deletion.remove()
            self._remove(gone)

        return remove

    def _is_old(self, snapshot: OffsetAndEpoch, now_ms: int) -> bool:
        if self.config.retention_ms < 0:
            return False
        try:
            held = snapshots.last_append_time_ms(self._fs, self.snapshot_path(snapshot))
        except CorruptMessage as damaged:
            log.warning("an old snapshot of the metadata log is damaged, and goes: %s", damaged)
            return True
        return now_ms - held > self.config.retention_ms

    def _forget(self, gone: Sequence[OffsetAndEpoch]) -> list[str]:
        """Take snapshots out; the paths that their files have now."""
        paths = []
        self._snapshots = {snapshot: size for snapshot, size in self._snapshots.items() if snapshot not in gone}
        for snapshot in gone:
            path = f"{self.directory}/{file_name(snapshot, snapshots.DELETED)}"
            self._fs.rename(self.snapshot_path(snapshot), path)
            paths.append(path)
        return paths

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            snapshots.remove_quietly(self._fs, path)

    def close(self) -> None:
        """Bring everything to the disk. In any thread. Raises KafkaStorageError.

        A full disk lacks the ends of the indexes then, which the next start makes anew.
        """
        try:
            self._log.close()
        except KafkaStorageError as problem:
            if not isinstance(problem.__cause__, OSError) or problem.__cause__.errno not in LACKS_ROOM:
                raise
            log.warning("the metadata log is closed without the ends of its indexes: %s", problem)
            self._log.flush()
            self._log.release()

    def release(self) -> None:
        """Let go of all files, without writing: after a failure."""
        self._log.release()
