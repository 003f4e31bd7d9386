"""The files of one partition's log: segments, snapshots, checkpoints, and what of them is on the disk.

What is appended and read is `PartitionLog`'s affair; here are the ways in which the set of files changes: a new
segment, a truncation, retention, a compaction, a shutdown; and the group commit's account of what is not synced yet.
"""

import logging
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import (
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
)
from ottla.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.log import checkpoints, names, recovery
from ottla.log.decisions.durability import Durability, Unsynced
from ottla.log.flush import FlushTicket, Rewrite, rewrites
from ottla.log.fs import FileSystem
from ottla.log.leader_epochs import EpochEnd
from ottla.log.producer_snapshots import ProducerSnapshots
from ottla.log.producer_state import ProducerState
from ottla.log.retention import Deletion, breached_count
from ottla.log.segment import Segment
from ottla.log.segment_list import SegmentList
from ottla.log.segment_recovery import end_of

logger: Final = logging.getLogger(__name__)


class Written(Protocol):
    """Checkpoints to be written."""

    def write(self) -> None:
        """In any thread. Raises OSError."""
        ...


class _NoCheckpoints:
    """For a log without checkpoints."""

    def write(self) -> None:
        pass


def _nobody(problem: OSError) -> None:
    """The default callback: the failed operation raises the error anyway."""


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
        self.log_start_offset: Offset = loaded.log_start_offset
        self.log_end_offset: Offset = loaded.end_offset
        self._directory = os.fspath(directory)
        self._fs = fs
        self._clock = clock
        self._segments = SegmentList(fs, loaded.segments)
        self._high_watermark = self.log_start_offset
        self._durability: Durability[Segment] = Durability(
            loaded.recovery_point,
            must_rewrite=loaded.recovery_point < loaded.end_offset,
            is_cut_synced=not loaded.changed,
        )
        self._producers = ProducerSnapshots(
            fs, self._directory, loaded.producer_state, loaded.snapshots, self._segments.active, self._durability
        )
        if loaded.changed:
            self._unsynced.directories.append(self._directory)
            self._unsynced.active_cut = True
        self.prepare_checkpoints: Callable[[], Written] = _NoCheckpoints
        """The checkpoints of this log's directory as of now. They are written before a truncation below the recovery
        point, which they lower, lest a crash takes what is appended later for synced."""
        self.start_moves = 0
        """How often records were deleted on request, or because the leader had deleted them."""
        self.on_error: Callable[[OSError], None] = _nobody
        """Called, in any thread, with every error of the disk."""
        self._lowest_end: Offset | None = None
        self._rewrites: list[Rewrite] = []
        self._closed = False
        self._jitter_ms = _jitter_ms(config)
        """What the active segment gets less than `segment.ms`."""
        if self.recovery_point < self.log_end_offset:
            first = self._segments.number_of(self.recovery_point)
            self._unsynced.segments = loaded.segments[first:-1]

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # --- state -------------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> Offset:
        """All below it is on the disk."""
        return self._durability.recovery_point

    @property
    def is_cut_synced(self) -> bool:
        """Whether nothing that was cut off can come back in a power failure. A follower appends nothing before that:
        what it had, between or behind what it has copied since, would pass for the leader's log."""
        return self._durability.is_cut_synced

    @property
    def awaits_flush(self) -> bool:
        """Retention deletes nothing more before the names of newer segments are on the disk."""
        return self._durability.awaits_flush

    @property
    def _unsynced(self) -> Unsynced[Segment]:
        return self._durability.unsynced

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, ascending; the last one is active."""
        return tuple(self._segments.all)

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
        if self._segments.active.size:
            try:
                self._roll(self.log_end_offset)
            except OSError as problem:
                raise self._storage_error("begin a segment of", problem) from problem

    @property
    def may_roll_freely(self) -> bool:
        """Whether the next segment can begin without a sync of the directory: something of the active one is synced."""
        return self._durability.rolls_freely(self._segments.active.base_offset)

    def _roll(self, base_offset: int) -> Segment:
        old = self._segments.active
        if not old.size and old.base_offset == base_offset:
            return old
        if old.needs_cut:
            old.cut()
            try:
                old.file.sync()  # a crash must not bring the rest of a failed append back, behind the recovery point
            except OSError:
                self._durability.failed()
                raise
        if not self.may_roll_freely:
            self._fs.sync_directory(self._directory)
        old.finish()
        old.close()
        segment = self._new_segment(base_offset)
        self.producer_state.end_offset = base_offset
        try:
            self._producers.write(self._producers.state, base_offset, old)
        except OSError:
            segment.discard()
            raise
        self._unsynced.segments.append(old)
        self._unsynced.directories.append(self._directory)
        self._set_segments([*self._segments.all, segment])
        self._jitter_ms = _jitter_ms(self.config)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._fs,
            self._directory,
            base_offset,
            created_ms=self._clock.now_ms(),
            preallocated_bytes=self.config.preallocated_bytes,
        )

    def _set_segments(self, segments: list[Segment]) -> None:
        self._producers.discard_load()
        self._segments.replace(segments)

    def snapshot_producers_if_due(self) -> None:
        """Writes a snapshot between two segments when much was appended since the last, so that a recovery need not
        look through all of a large segment for its producers. A failure is only noted: the older ones do."""
        if not self._producers.is_due(self._segments.active):
            return
        try:
            self._producers.write_within(self.producer_state, self.log_end_offset, self._segments.active)
            self._producers.remove_between(self._segments.all)
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
        durability = self._durability
        dirty = durability.is_behind(self.log_end_offset)
        if not (dirty or durability.unsynced or self.leader_epochs.dirty):
            return None
        work = durability.take()
        segments = list(work.segments)
        # Before the snapshots: once one is on the disk, aborted transactions before it are not searched for again.
        work.put_first(path for segment in segments for path in segment.file_paths()[1:])
        if dirty:
            segments.append(self._segments.active)
        failure = None
        self._rewrites = []
        if durability.must_rewrite:
            try:
                self._rewrites = rewrites(self._fs, segments, work.paths, self.recovery_point)
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
            last_base=self._segments.active.base_offset,
            generation=durability.generation,
            segments=segments,
            work=work,
            checkpoint_files=checkpoint_files,
            rewrites=self._rewrites,
            failure=failure,
            is_first=durability.recovery_point <= self._segments.all[0].base_offset,
        )

    def flushed(self, ticket: FlushTicket) -> None:
        """Moves `recovery_point`, after `ticket.sync()` has returned."""
        if self._durability.synced(
            ticket.end_offset,
            last_base=ticket.last_base,
            generation=ticket.generation,
            rewritten=bool(ticket.rewrites),
        ):
            for closed in ticket.work.segments:
                closed.release()
        else:
            self.flush_cancelled(ticket)

    def flush_failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised: all that it was to sync is unsynced still, and will be written again."""
        self.flush_cancelled(ticket)
        self._durability.failed()

    def flush_cancelled(self, ticket: FlushTicket) -> None:
        """Takes back a ticket that nobody has synced, or will: the next one has its work."""
        self._durability.given_back(ticket.work, self._segments.all)
        self.leader_epochs.dirty = True

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

    def expect_cut(self, offset: Offset) -> bool:
        """`truncate_to(offset)` is to follow: whether the checkpoints have to be written before. Until `end_cut` they
        say that nothing is synced from the beginning of its segment on."""
        if offset >= min(max(self.recovery_point, self.log_start_offset), self.log_end_offset):
            return False
        if offset <= self._segments.all[0].base_offset:
            expected = 0
        else:
            expected = self._segments.all[self._segments.number_of(offset - 1)].base_offset
        self._durability.expect_cut(Offset(expected))
        return True

    def cut_is_written(self) -> None:
        """The checkpoints, as they were prepared since `expect_cut`, are on the disk."""
        self._durability.cut_is_written()

    def end_cut(self) -> None:
        """The truncation is done, or not to be done any more."""
        self._durability.end_cut()

    @property
    def checkpointed(self) -> tuple[Offset, Offset]:
        """Recovery point and log start, as checkpoints may state them now."""
        return self._durability.checkpointed(self.log_start_offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drops all from `offset` on (and the rest of the batch that it falls into). What is known of its producers is
        read again when it is asked for, or by `load_producers`. Raises KafkaStorageError."""
        self._producers.discard_load()
        for rewrite in self._rewrites:
            rewrite.cancel()
        self.leader_epochs.truncate_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return
        if offset <= self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            kept = self._segments.number_of(offset - 1) + 1
            dropped = self._segments.all[kept:]
            segment = self._segments.all[kept - 1]
            position = segment.position_of(offset, blocking=True)
            if position < segment.size:
                offset = min(offset, Offset(segment.header_at(position, blocking=True).base_offset))
            self._move_recovery_point_back(offset)
            segment.truncate_to(offset)
            end = end_of(segment)
            self._set_segments(self._segments.all[:kept])
            for gone in dropped:
                self._remove_segment(gone)
            self.log_end_offset = Offset(end)
            self._ends_moved_back()
        except OSError as problem:
            raise self._storage_error("truncate", problem) from problem

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything; the log is empty and begins at `offset`. Raises KafkaStorageError."""
        self._producers.discard_load()
        for rewrite in self._rewrites:
            rewrite.cancel()
        try:
            self._move_recovery_point_back(Offset(-1))
            dropped = self._segments.all
            for gone in dropped:
                self._remove_segment(gone)
            segment = self._new_segment(offset)
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
        if target >= max(self.recovery_point, self.log_start_offset):
            return
        self.log_start_offset = min(self.log_start_offset, target)
        if self._durability.lowered(target):
            self.prepare_checkpoints().write()

    def _ends_moved_back(self) -> None:
        end = self.log_end_offset
        self._producers.expire()
        self._lowest_end = end if self._lowest_end is None else min(end, self._lowest_end)
        self._high_watermark = min(self._high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self._durability.was_cut(end, self._segments.all, self._directory)

    @property
    def producer_state(self) -> ProducerState:
        """The state of producers at the end of the log. After a truncation it is read from the disk. Raises
        KafkaStorageError."""
        producers = self._producers
        while producers.is_stale and not self._closed:
            self.load_producers()
        return producers.state

    @property
    def has_stale_producers(self) -> bool:
        """Whether `load_producers` has something to do."""
        return self._producers.is_stale

    def load_producers(self) -> None:
        """Reads what is known of producers after a truncation; in any thread, while nothing is appended. Raises
        KafkaStorageError; then it is still to be done, as when the log is truncated again meanwhile."""
        if self._closed:
            return
        try:
            self._producers.load(self)
        except OSError as problem:
            raise self._storage_error("read the producers of", problem) from problem

    def delete_records_before(self, offset: Offset) -> Offset:
        """Moves the log start offset up (DeleteRecords, retention); the new one. Segments go with the next
        retention check. Raises OffsetOutOfRange above the high watermark.

        The recovery point may stay below it, unlike Kafka's: the deleted records share a segment with those that are
        kept. Recovery has to check the whole of it, for behind an unsynced gap no reader finds what is kept.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is above the high watermark {self._high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.start_moves += 1
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
        for segment in self._segments.all[:-1]:
            segment.release()
        try:
            count = breached_count(
                self._segments.all,
                self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self._high_watermark if before is None else min(self._high_watermark, before),
                log_end_offset=self.log_end_offset,
            )
            if not count:
                return None
            if count == len(self._segments.all):
                self._roll(self.log_end_offset)
            if before is not None and self._segments.all[count].base_offset > self._durability.named_to:
                # A crash could take the one that is to stay, and bring back one that is gone: the log would end there,
                # and give its offsets away again.
                self._unsynced.directories.append(self._directory)
                self._durability.awaits_flush = True
                return None
            gone = self._segments.all[:count]
            size = sum(segment.size for segment in gone)
            self._set_segments(self._segments.all[count:])
            self._durability.begins_at(self._segments.all, self._segments.all[0].base_offset)
            self.delete_records_before(Offset(max(self.log_start_offset, self._segments.all[0].base_offset)))
            paths = [path for segment in gone for path in self._retire(segment)]
        except OSError as problem:
            raise self._storage_error("delete segments of", problem) from problem
        logger.info("%s: deleted %d segments, now begins at %d", self.topic_partition, count, self.log_start_offset)
        return Deletion(self._fs, paths, segment_count=count, size_bytes=size)

    @property
    def generation(self) -> int:
        """Another one after each truncation: what was seen of the log before may not be so any more."""
        return self._durability.generation

    def take_lowest_end(self) -> Offset | None:
        """The lowest offset that the log was truncated to since this was last asked; None if it was not."""
        lowest, self._lowest_end = self._lowest_end, None
        return lowest

    def holds(self, segments: Sequence[Segment], generation: int) -> bool:
        """Whether these are closed segments of the log, side by side, as they were in that generation."""
        if self._closed or generation != self.generation:
            return False
        return self._segments.holds(segments)

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str]:
        """Has `new`, which is on the disk, in the place of segments that the log `holds`; the paths that those now have
        and that are to be removed. See `ottla.log.replacement`. Raises OSError: then the files are put in order by the
        next start, the log goes on with `new`."""
        first = self._segments.all.index(old[0])
        self._set_segments([*self._segments.all[:first], new, *self._segments.all[first + len(old) :]])
        self._unsynced.keep(self._segments.all)
        self._unsynced.directories.append(self._directory)
        return [path for number, segment in enumerate(old) for path in self._retire(segment, snapshot=number > 0)]

    def _retire(self, segment: Segment, *, snapshot: bool = True) -> list[str]:
        """Renames a segment's files and its snapshot; their new paths."""
        return self._segments.retire(segment, self._producers.forget(segment.base_offset) if snapshot else None)

    def _remove_segment(self, segment: Segment) -> None:
        self._segments.remove(segment, self._producers.forget(segment.base_offset))

    def prepare_close(self) -> FlushTicket | None:
        """Writes what a closed log has more than an open one: the indexes' ends and a producer snapshot.

        When the ticket is synced and `flushed`, call `release`. Raises KafkaStorageError.
        """
        try:
            active = self._segments.active
            if active.needs_cut:
                active.cut()
            active.finish()
            end = self.log_end_offset
            if end > self.log_start_offset and not self._producers.is_newest(end):
                state = self.producer_state
                state.end_offset = end
                self._producers.write_within(state, end, active)
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
        """Takes the place of the log that this one is a copy of, up to the end of both. The old one must not be written
        any more, and its tickets prove nothing about this one."""
        self.leader_epochs = before.leader_epochs
        self.leader_epochs.dirty = True
        self._producers.replace(before.producer_state)
        self.log_start_offset = before.log_start_offset
        self._high_watermark = before.high_watermark
        self._durability.generation = before.generation + 1
        self._unsynced.directories.append(os.path.dirname(self._directory))  # its name is as new as its last records

    def release(self) -> None:
        """Lets go of all descriptors without writing anything."""
        self._closed = True
        for segment in self._segments.all:
            segment.release()
