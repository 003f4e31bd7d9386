"""The files of one partition's log: segments, snapshots, checkpoints, and what of them is on the disk.

What is appended and read is `PartitionLog`'s affair; here are the ways in which the set of files changes: a new
segment, a truncation, retention, a compaction, a shutdown; and the group commit's account of what is not synced yet.
"""

import logging
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import (
    CorruptMessage,
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
)
from ottla.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.log import checkpoints, names, recovery
from ottla.log.flush import FlushTicket, Rewrite, Unsynced
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import EpochEnd
from ottla.log.producer_recovery import note_aborted, producer_state
from ottla.log.producer_state import ProducerState
from ottla.log.retention import Deletion, breached_count
from ottla.log.scan import find_batch
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)

_SNAPSHOT_EVERY_BYTES: Final = 64 << 20
_base_offset: Final = attrgetter("base_offset")


class Written(Protocol):
    """Checkpoints to be written."""

    def write(self) -> None:
        """In any thread. Raises OSError."""
        ...


class _NoCheckpoints:
    """For a log that nobody keeps checkpoints for."""

    def write(self) -> None:
        pass


def _nobody(problem: OSError) -> None:
    """For a log whose errors nobody wants to hear of but those who asked."""


def _jitter_ms(config: LogConfig) -> int:
    """Drawn anew for each segment, so that those which began together do not all end together."""
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    return random.randrange(limit_ms) if limit_ms else 0


class LogFiles:
    """Segments and their companions in one directory; unlocked, as `PartitionLog` is."""

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        fs: FileSystem,
        clock: Clock,
        loaded: recovery.LoadedLog,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.topic_id: TopicId | None = loaded.topic_id
        self.leader_epochs = loaded.leader_epochs
        self._producer_state: ProducerState = loaded.producer_state
        self._producers_are_stale = False
        """The log was truncated, and what is known of its producers is to be read again."""
        self._loading_producers = Lock()
        self._changes = 0
        """Counts what makes the result of a `load_producers` under way useless: other segments, an end moved back."""
        self._changing = Lock()
        """Held for a moment: the loop counts a change, or a thread publishes what it has loaded, not both."""
        self.log_start_offset: Offset = loaded.log_start_offset
        self.log_end_offset: Offset = loaded.end_offset
        self.recovery_point: Offset = loaded.recovery_point
        """All below it is on the disk."""
        self._directory = os.fspath(directory)
        self._fs = fs
        self._clock = clock
        self._segments = loaded.segments
        """Ascending; replaced, never changed, so that a thread that reads has a consistent list."""
        self._active = loaded.segments[-1]
        self._high_watermark = self.log_start_offset
        self._snapshots = loaded.snapshots
        self._snapshot_end = loaded.snapshots[-1] if loaded.snapshots else -1
        """Where the last snapshot was taken of the present history."""
        self._snapshot_at = (loaded.segments[-1].base_offset, loaded.segments[-1].size)
        """Base offset and size of the active segment then."""
        self._unsynced = Unsynced()
        if loaded.changed:
            self._unsynced.directories.append(self._directory)
            self._unsynced.active_cut = True
        self._generation = 0
        """Counts truncations and failed syncs: a ticket taken before one says nothing about the log after it."""
        self._sync_failed = loaded.recovery_point < loaded.end_offset
        """A sync has failed, or may have in the process before: see `ottla.log.flush`."""
        self.prepare_checkpoints: Callable[[], Written] = _NoCheckpoints
        """The checkpoints of this log's directory as of now. They are written before a truncation below the recovery
        point, which they lower, lest a crash takes what is appended later for synced."""
        self._expected_cut: Offset | None = None
        self._expected_cut_is_written = False
        self.on_error: Callable[[OSError], None] = _nobody
        """Told, in any thread, of every error of the disk."""
        self._lowest_end: Offset | None = None
        self._named_to: int = loaded.recovery_point - 1
        """The names of segments that begin up to here are on the disk."""
        self.awaits_flush = False
        """Retention deletes nothing more before the names of newer segments are on the disk."""
        self._rewrites: list[Rewrite] = []
        self._closed = False
        self._jitter_ms = _jitter_ms(config)
        """What the active segment gets less than `segment.ms`."""
        if self.recovery_point < self.log_end_offset:
            first = max(0, bisect_right(self._segments, self.recovery_point, key=_base_offset) - 1)
            self._unsynced.segments = loaded.segments[first:-1]

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, ascending; the last one is active."""
        return tuple(self._segments)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The last leader epoch with a start in the log; -1 if none."""
        return LeaderEpoch(self.leader_epochs.latest)

    @property
    def high_watermark(self) -> Offset:
        """Consumers see the offsets below. Moves up only, except by truncation; kept within the log."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: Offset) -> None:
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset > self._high_watermark:
            self._high_watermark = offset
            self.producer_state.high_watermark_moved(offset)

    @property
    def last_stable_offset(self) -> Offset:
        """Readers of committed records see the offsets below."""
        unstable = self.producer_state.first_unstable_offset()
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return Offset(max(unstable, self.log_start_offset))

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Raises InconsistentTopicId if the directory has another one; OSError."""
        if self.topic_id is None:
            path = f"{self._directory}/{names.PARTITION_METADATA}"
            self._fs.write_bytes(path, checkpoints.encode_partition_metadata(topic_id), sync=False)
            self._unsynced.paths.append(path)
            self._unsynced.directories.append(self._directory)
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicId(
                f"{self._directory} holds a topic with the id {self.topic_id}, not {topic_id}: it was deleted and "
                "created again; remove the directory or restore the metadata that belongs to it"
            )

    def assign_epoch_start(self, leader_epoch: LeaderEpoch) -> None:
        """Notes that this epoch begins at the end of the log: called on becoming leader."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> EpochEnd:
        """Where the last epoch up to this one ends (KIP-101, KIP-279); (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def update_config(self, config: LogConfig) -> None:
        """From now on, for new appends and the next retention check."""
        self.config = config

    def _storage_error(self, what: str, problem: OSError) -> KafkaStorageError:
        self.on_error(problem)
        return KafkaStorageError(f"cannot {what} {self.topic_partition} in {self._directory}: {problem}")

    # --- segments ----------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begins a new segment at the end of the log, unless the active one is empty. Raises KafkaStorageError."""
        if self._active.size:
            try:
                self._roll(self.log_end_offset)
            except OSError as problem:
                raise self._storage_error("begin a segment of", problem) from problem

    def _roll(self, base_offset: int) -> Segment:
        old = self._active
        if not old.size and old.base_offset == base_offset:
            return old
        if old.needs_cut:
            old.cut()
            try:
                old.file.sync()  # a crash must not bring the rest of a failed append back, behind the recovery point
            except OSError:
                self._distrust_syncs()
                raise
        if self.recovery_point <= old.base_offset:
            # A power failure must not leave a segment without those before it, which may have no durable names yet: the
            # log would seem to begin there.
            self._fs.sync_directory(self._directory)
        old.finish()
        old.close()
        segment = Segment.create(self._fs, self._directory, base_offset, created_ms=self._clock.now_ms())
        self.producer_state.end_offset = base_offset
        try:
            self._write_snapshot(base_offset)
        except OSError:
            for path in segment.file_paths():
                self._fs.remove(path)
            raise
        self._unsynced.segments.append(old)
        self._unsynced.directories.append(self._directory)
        self._set_segments([*self._segments, segment])
        self._jitter_ms = _jitter_ms(self.config)
        return segment

    def _discard_load(self) -> None:
        """Has a `load_producers` that is under way in a thread publish nothing, and report no missing file."""
        with self._changing:
            self._changes += 1

    def _set_segments(self, segments: list[Segment]) -> None:
        self._discard_load()
        self._segments = segments
        self._active = segments[-1]

    def _write_snapshot(self, offset: int) -> None:
        path = names.segment_file(self._directory, offset, names.PRODUCER_SNAPSHOT)
        self._fs.write_bytes(path, self.producer_state.encode(), sync=False)
        self._unsynced.paths.append(path)
        self._unsynced.directories.append(self._directory)
        self._snapshot_end = offset
        self._snapshot_at = (self._active.base_offset, self._active.size)
        if offset not in self._snapshots:
            self._snapshots.append(offset)

    def _write_snapshot_within_segment(self) -> None:
        """At the end of the log. Recovery will look at nothing before it, not for aborted transactions either."""
        index = self._active.transaction_index
        if index.has_file:
            self._unsynced.paths.append(index.path)
        self._write_snapshot(self.log_end_offset)

    def snapshot_producers_if_due(self) -> None:
        """Writes a snapshot between two segments when much was appended since the last, so that a recovery need not
        look through all of a large segment for its producers. A failure is only noted: the older ones do."""
        base_offset, size = self._snapshot_at
        appended = self._active.size - (size if base_offset == self._active.base_offset else 0)
        if appended < _SNAPSHOT_EVERY_BYTES:
            return
        try:
            self._write_snapshot_within_segment()
            bases = {segment.base_offset for segment in self._segments}
            between = [offset for offset in self._snapshots if offset not in bases]
            for offset in between[:-2]:  # the last but one is synced for sure
                self._snapshots.remove(offset)
                self._remove_file(names.segment_file(self._directory, offset, names.PRODUCER_SNAPSHOT))
        except OSError as problem:
            logger.warning("cannot write a producer snapshot of %s: %s", self.topic_partition, problem)

    def _write_epochs(self, *, sync: bool) -> None:
        epochs = self.leader_epochs
        if epochs.dirty:
            path = f"{self._directory}/{names.LEADER_EPOCHS}"
            if sync:
                checkpoints.write(self._fs, path, epochs.encode())
            else:
                self._fs.write_bytes(path, epochs.encode(), sync=False)
            epochs.dirty = False

    # --- flush -------------------------------------------------------------------------------------------------

    def prepare_flush(self) -> FlushTicket | None:
        """What brings everything appended so far to the disk; None if it is there, or if the log is closed. Call
        `ticket.sync()` in any thread, then `flushed(ticket)` in this one."""
        if self._closed:
            return None
        dirty = self.recovery_point < self.log_end_offset or self._unsynced.active_cut
        if not (dirty or self._unsynced or self.leader_epochs.dirty):
            return None
        work, self._unsynced = self._unsynced, Unsynced()
        segments = list(work.segments)
        # Before the snapshots: behind one that has reached the disk nobody looks for aborted transactions any more.
        work.paths[:0] = [path for segment in segments for path in segment.file_paths()[1:]]
        if dirty:
            segments.append(self._active)
        failure = None
        self._rewrites = []
        if self._sync_failed:
            try:
                self._rewrites = self._everything_again(segments, work.paths)
            except OSError as problem:
                failure = problem
        epochs = self.leader_epochs
        checkpoint_files = {}
        if epochs.dirty:
            checkpoint_files[f"{self._directory}/{names.LEADER_EPOCHS}"] = epochs.encode()
            epochs.dirty = False
        return FlushTicket(
            self._fs,
            end_offset=self.log_end_offset,
            last_base=self._active.base_offset,
            generation=self._generation,
            segments=segments,
            work=work,
            checkpoint_files=checkpoint_files,
            rewrites=self._rewrites,
            failure=failure,
            is_first=self.recovery_point <= self._segments[0].base_offset,
        )

    def _everything_again(self, segments: list[Segment], paths: list[str]) -> list[Rewrite]:
        rewrites = []
        for segment in segments:
            segment.cut()  # a truncation may be among what was lost
            start = self._position_synced_to(segment)
            rewrites.append(Rewrite(segment.file, segment.path, start, segment.size, checked=True))
        for path in paths:
            try:
                file = self._fs.open(path)
            except FileNotFoundError:
                logger.debug("%s was deleted before it was synced", path)
                continue
            rewrites.append(Rewrite(file, path, 0, file.size(), checked=False))
        return rewrites

    def _position_synced_to(self, segment: Segment) -> int:
        point = self.recovery_point
        if segment.base_offset >= point:
            return 0
        try:
            return segment.position_of(point, blocking=True)
        except CorruptMessage:  # before it; what was appended since is intact
            start = segment.offset_index.floor(point, blocking=True)[1]
            found = find_batch(segment.file, start, segment.size, min_offset=point)
            return segment.size if found is None else found.position

    def flushed(self, ticket: FlushTicket) -> None:
        """Moves `recovery_point`, after `ticket.sync()` has returned."""
        for closed in ticket.work.segments:
            closed.release()
        if ticket.generation != self._generation:
            return
        if ticket.rewrites:
            self._sync_failed = False
        if ticket.end_offset > self.recovery_point:
            self.recovery_point = ticket.end_offset
        self._named_to = max(self._named_to, ticket.last_base)
        self.awaits_flush = False

    def flush_failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised: all that it was to sync is unsynced still, and will be written again."""
        self.flush_cancelled(ticket)
        self._distrust_syncs()

    def flush_cancelled(self, ticket: FlushTicket) -> None:
        """Takes back a ticket that nobody has synced, or will: the next one has its work."""
        alive = set(map(id, self._segments))
        ticket.work.segments = [segment for segment in ticket.work.segments if id(segment) in alive]
        self._unsynced.add(ticket.work)
        self.leader_epochs.dirty = True

    def _distrust_syncs(self) -> None:
        """After a failed one: what was not synced before may be lost, and is to be written again; a ticket that is
        under way says nothing about it."""
        self._sync_failed = True
        self._generation += 1

    def flush(self) -> None:
        """All three steps at once, waiting. Raises KafkaStorageError."""
        ticket = self.prepare_flush()
        if ticket is not None:
            self._sync(ticket)

    def _sync(self, ticket: FlushTicket) -> None:
        try:
            ticket.sync()
        except OSError as problem:
            self.flush_failed(ticket)
            raise self._storage_error("flush", problem) from problem
        self.flushed(ticket)

    # --- truncate, delete, close -------------------------------------------------------------------------------

    # Many logs may have to be truncated at once, each below its recovery point. Instead of writing the checkpoints of
    # the directory for each of them:
    #     expect_cut, of each  ->  write the checkpoints, once, in a thread  ->  cut_is_written, truncate_to, of each
    # Until the expectation ends, no checkpoint promises more than it allows, whatever is synced meanwhile.

    def expect_cut(self, offset: Offset) -> bool:
        """`truncate_to(offset)` is to follow: whether the checkpoints have to be written before. Until `end_cut` they
        say that nothing is synced from the beginning of its segment on."""
        if offset >= min(self.recovery_point, self.log_end_offset):
            return False
        if offset <= self._segments[0].base_offset:
            expected = 0
        else:
            expected = self._segments[bisect_right(self._segments, offset - 1, key=_base_offset) - 1].base_offset
        self._expected_cut = Offset(expected)
        self._expected_cut_is_written = False
        return True

    def cut_is_written(self) -> None:
        """The checkpoints, as they were prepared since `expect_cut`, are on the disk."""
        self._expected_cut_is_written = self._expected_cut is not None

    def end_cut(self) -> None:
        """The truncation is done, or not to be done any more."""
        self._expected_cut = None
        self._expected_cut_is_written = False

    @property
    def checkpointed(self) -> tuple[Offset, Offset]:
        """Recovery point and log start, as checkpoints may state them now."""
        expected = self._expected_cut
        if expected is None:
            return self.recovery_point, self.log_start_offset
        return min(self.recovery_point, expected), min(self.log_start_offset, expected)

    def truncate_to(self, offset: Offset) -> None:
        """Drops all from `offset` on (and the rest of the batch that it falls into). What is known of its producers is
        read again when it is asked for, or by `load_producers`. Raises KafkaStorageError."""
        self._discard_load()
        for rewrite in self._rewrites:
            rewrite.cancel()
        self.leader_epochs.truncate_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return
        if offset <= self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            kept = bisect_right(self._segments, offset - 1, key=_base_offset)
            dropped = self._segments[kept:]
            segment = self._segments[kept - 1]
            position = segment.position_of(offset, blocking=True)
            if position < segment.size:
                offset = min(offset, Offset(segment.header_at(position, blocking=True).base_offset))
            self._move_recovery_point_back(offset)
            segment.truncate_to(offset)
            end = recovery.end_of(segment)
            self._set_segments(self._segments[:kept])
            for gone in dropped:
                self._remove_segment(gone)
            self.log_end_offset = Offset(end)
            self._ends_moved_back()
        except OSError as problem:
            raise self._storage_error("truncate", problem) from problem

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything; the log is empty and begins at `offset`. Raises KafkaStorageError."""
        self._discard_load()
        for rewrite in self._rewrites:
            rewrite.cancel()
        try:
            self._move_recovery_point_back(Offset(-1))
            dropped = self._segments
            for gone in dropped:
                self._remove_segment(gone)
            segment = Segment.create(self._fs, self._directory, offset, created_ms=self._clock.now_ms())
            self._set_segments([segment])
            self.log_start_offset = self.log_end_offset = offset
            self.leader_epochs.clear()
            self._high_watermark = min(self._high_watermark, offset)
            self._ends_moved_back()
            self._high_watermark = offset
        except OSError as problem:
            raise self._storage_error("truncate", problem) from problem

    def _move_recovery_point_back(self, offset: Offset) -> None:
        target = Offset(max(offset, 0))
        if target >= self.recovery_point and (offset >= 0 or target >= self.log_start_offset):
            return
        self.recovery_point = min(self.recovery_point, target)
        self.log_start_offset = min(self.log_start_offset, target)
        expected = self._expected_cut
        if expected is None or not self._expected_cut_is_written or target < expected:
            self.prepare_checkpoints().write()

    def _ends_moved_back(self) -> None:
        end = self.log_end_offset
        self._generation += 1
        with self._changing:
            self._changes += 1
            self._producers_are_stale = True
        self._lowest_end = end if self._lowest_end is None else min(end, self._lowest_end)
        self._named_to = min(self._named_to, end - 1)
        self.recovery_point = min(self.recovery_point, end)
        self._high_watermark = min(self._high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self._unsynced.directories.append(self._directory)
        self._unsynced.active_cut = True
        alive = set(map(id, self._segments))
        self._unsynced.segments = [segment for segment in self._unsynced.segments if id(segment) in alive]

    @property
    def producer_state(self) -> ProducerState:
        """What is known of producers at the end of the log. After a truncation it is read from the disk. Raises
        KafkaStorageError."""
        while self._producers_are_stale and not self._closed:
            self.load_producers()
        return self._producer_state

    @producer_state.setter
    def producer_state(self, state: ProducerState) -> None:
        with self._changing:
            self._changes += 1
            self._producer_state = state
            self._producers_are_stale = False

    @property
    def has_stale_producers(self) -> bool:
        """Whether `load_producers` has something to do."""
        return self._producers_are_stale

    def load_producers(self) -> None:
        """Reads what is known of producers after a truncation; in any thread, while nothing is appended. Raises
        KafkaStorageError; then it is still to be done, as when the log is truncated again meanwhile."""
        with self._loading_producers:  # who asks for it while a thread is at it waits
            if not self._producers_are_stale or self._closed:
                return
            changes = self._changes
            try:
                state, snapshots, aborted = producer_state(
                    self._fs,
                    self._directory,
                    self._segments,
                    list(self._snapshots),
                    self.log_start_offset,
                    self.log_end_offset,
                )
                with self._changing:
                    if changes != self._changes:
                        return
                    note_aborted(aborted)
                    self._snapshots = snapshots
                    self._snapshot_end = -1
                    self._producer_state = state
                    self._producers_are_stale = False
            except FileNotFoundError as problem:
                if changes == self._changes:
                    raise self._storage_error("read the producers of", problem) from problem
                logger.debug("%s: changed while its producers were read", self.topic_partition)
            except OSError as problem:
                raise self._storage_error("read the producers of", problem) from problem

    def delete_records_before(self, offset: Offset) -> Offset:
        """Moves the log start offset up (DeleteRecords, retention); the new one. Segments go with the next
        retention check. Raises OffsetOutOfRange above the high watermark."""
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is above the high watermark {self._high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.leader_epochs.truncate_start(offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, *, before: Offset | None = None) -> Deletion | None:
        """Takes out what the log start offset, retention.ms and retention.bytes no longer keep; None if nothing.

        Segments that end after `before` stay: give the recovery point that is written in the checkpoint. A crash may
        bring some of what was removed back, and not all; past that point recovery would take the gap for a loss, and
        cut off what follows. With `before` nothing is removed either while the first segment that stays might lose its
        name in a crash: then the log `awaits_flush`. Call `Deletion.remove()` in a thread. Raises KafkaStorageError.

        Descriptors that readers have left open in closed segments are closed.
        """
        for segment in self._segments[:-1]:
            segment.release()
        try:
            count = breached_count(
                self._segments,
                self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self._high_watermark if before is None else min(self._high_watermark, before),
                log_end_offset=self.log_end_offset,
            )
            if not count:
                return None
            if count == len(self._segments):
                self._roll(self.log_end_offset)
            if before is not None and self._segments[count].base_offset > self._named_to:
                # A crash could take the one that is to stay, and bring back one that is gone: the log would end there,
                # and give its offsets away again.
                self._unsynced.directories.append(self._directory)
                self.awaits_flush = True
                return None
            gone = self._segments[:count]
            size = sum(segment.size for segment in gone)
            self._set_segments(self._segments[count:])
            self.delete_records_before(Offset(max(self.log_start_offset, self._segments[0].base_offset)))
            ids = set(map(id, gone))
            self._unsynced.segments = [segment for segment in self._unsynced.segments if id(segment) not in ids]
            paths = [path for segment in gone for path in self._retire(segment)]
        except OSError as problem:
            raise self._storage_error("delete segments of", problem) from problem
        logger.info("%s: deleted %d segments, now begins at %d", self.topic_partition, count, self.log_start_offset)
        return Deletion(self._fs, paths, segment_count=count, size_bytes=size)

    @property
    def generation(self) -> int:
        """Another one after each truncation: what was seen of the log before may not be so any more."""
        return self._generation

    def take_lowest_end(self) -> Offset | None:
        """The lowest offset that the log was truncated to since this was last asked; None if it was not."""
        lowest, self._lowest_end = self._lowest_end, None
        return lowest

    def holds(self, segments: Sequence[Segment], generation: int) -> bool:
        """Whether these are closed segments of the log, side by side, as they were in that generation."""
        if self._closed or generation != self._generation:
            return False
        first = bisect_right(self._segments, segments[0].base_offset, key=_base_offset) - 1
        here = self._segments[first:-1][: len(segments)] if first >= 0 else []
        return len(here) == len(segments) and all(one is other for one, other in zip(here, segments, strict=True))

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str]:
        """Has `new`, which is on the disk, in the place of segments that the log `holds`; the paths that those now have
        and that are to be removed. See `ottla.log.replacement`. Raises OSError: then the files are put in order by the
        next start, the log goes on with `new`."""
        first = self._segments.index(old[0])
        self._set_segments([*self._segments[:first], new, *self._segments[first + len(old) :]])
        ids = set(map(id, old))
        self._unsynced.segments = [segment for segment in self._unsynced.segments if id(segment) not in ids]
        self._unsynced.directories.append(self._directory)
        return [path for number, segment in enumerate(old) for path in self._retire(segment, snapshot=number > 0)]

    def _retire(self, segment: Segment, *, snapshot: bool = True) -> list[str]:
        """Renames a segment's files and its snapshot; their new paths."""
        paths = segment.file_paths()
        if snapshot and segment.base_offset in self._snapshots:
            self._snapshots.remove(segment.base_offset)
            paths.append(names.segment_file(self._directory, segment.base_offset, names.PRODUCER_SNAPSHOT))
        renamed = []
        for path in paths:
            try:
                self._fs.rename(path, path + names.DELETED)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)
                continue
            renamed.append(path + names.DELETED)
        segment.retire()
        return renamed

    def _remove_segment(self, segment: Segment) -> None:
        for path in segment.file_paths():
            self._remove_file(path)
        segment.release()
        if segment.base_offset in self._snapshots:
            self._snapshots.remove(segment.base_offset)
            self._remove_file(names.segment_file(self._directory, segment.base_offset, names.PRODUCER_SNAPSHOT))

    def _remove_file(self, path: str) -> None:
        try:
            self._fs.remove(path)
        except FileNotFoundError:
            logger.debug("%s was gone already", path)

    def prepare_close(self) -> FlushTicket | None:
        """Writes what a closed log has more than an open one: the indexes' ends and a producer snapshot.

        When the ticket is synced and `flushed`, call `release`. Raises KafkaStorageError.
        """
        try:
            active = self._active
            if active.needs_cut:
                active.cut()
            active.finish()
            end = self.log_end_offset
            if end > self.log_start_offset and end != self._snapshot_end:
                self.producer_state.end_offset = end
                self._write_snapshot_within_segment()
        except OSError as problem:
            raise self._storage_error("close", problem) from problem
        return self.prepare_flush()

    def close(self) -> None:
        """Flushes all and leaves the files as Kafka does after a clean shutdown. Raises KafkaStorageError."""
        if self._closed:
            return
        ticket = self.prepare_close()
        if ticket is not None:
            self._sync(ticket)
        self.release()

    def succeed(self, before: "LogFiles") -> None:
        """Takes the place of the log that this one is a copy of, up to the end of both. That one is not to be written
        any more, and what its tickets bring to the disk says nothing about this one."""
        self.leader_epochs = before.leader_epochs
        self.leader_epochs.dirty = True
        self.producer_state = before.producer_state
        self.log_start_offset = before.log_start_offset
        self._high_watermark = before.high_watermark
        self._generation = before._generation + 1
        self._unsynced.directories.append(os.path.dirname(self._directory))  # its name is as new as its last records

    def release(self) -> None:
        """Lets go of all descriptors without writing anything."""
        self._closed = True
        for segment in self._segments:
            segment.release()
