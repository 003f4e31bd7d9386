"""One partition's log: append and read."""

import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ottla.clock import Clock
from ottla.config.log import LogConfig, TimestampType
from ottla.errors import (
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from ottla.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.log import checkpoints, names, recovery
from ottla.log.appends import AppendInfo, check_copied, end_transaction, find_duplicate
from ottla.log.directory_checkpoints import NoCheckpoints, Written
from ottla.log.file_region import MIN_REGION_BYTES, FileRegion
from ottla.log.flush import FlushTicket
from ottla.log.flushes import Flushes
from ottla.log.fs import FileSystem, WouldBlock, keep_spare
from ottla.log.leader_epochs import EpochEnd
from ottla.log.producer_state import Origin, ProducedBatch, ProducerState, Verification
from ottla.log.reader import ColdRead, LogReader
from ottla.log.retention import Deletion, take_breached
from ottla.log.segment import Segment
from ottla.log.segment_files import SegmentFiles
from ottla.log.segment_list import ReadResult
from ottla.log.time_lookup import FoundOffset
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import CheckedBatches, assign, prepare_batches
from ottla.records.batch import (
    CONTROL_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)

logger: Final = logging.getLogger(__name__)


_path: Final = cache(Path)
"""For log directories, which are few: to make a path, and to hash it, takes longer than what is looked up by it."""


def _nobody(problem: OSError) -> None:
    """The default callback: the failed operation raises the error anyway."""


def _nothing() -> None:
    """The default callback of a log without checkpoints."""


class PartitionLog:
    """The log of one partition, in one directory.

    Owns its offsets (start, end, high watermark), its leader epochs, and the parts that do the work: `SegmentFiles`
    (with the segments, the snapshots of producers and the account of what is on the disk), `Flushes`, `LogReader`.

    Synchronous and unlocked: one thread owns it (the event loop's). Other threads get only `ColdRead`s and
    `FlushTicket`s, which hold their files open themselves.
    """

    def __init__(
        self,
        directory: Path | str,
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
        self.log_dir: Path = _path(os.path.dirname(self._directory))
        """The log directory that it is in, one of `log.dirs`."""
        self._fs = fs
        self._clock = clock
        self._high_watermark = loaded.log_start_offset
        self._files = SegmentFiles(fs, self._directory, config, clock, loaded)
        self._segments = self._files.segments
        self._durability = self._files.durability
        self._producers = self._files.producers
        self._flushes = Flushes(fs, self._directory, self._segments, self._durability)
        self.reader = LogReader(self, self._segments)
        self.prepare_checkpoints: Callable[[], Written] = NoCheckpoints
        """The checkpoints of this log's directory as of now. They are written before a truncation below the recovery
        point, which they lower, lest a crash takes what is appended later for synced."""
        self.on_start_moved: Callable[[], None] = _nothing
        """Called when records have been deleted, until a checkpoint holds the new start."""
        self.on_error: Callable[[OSError], None] = _nobody
        """Called, in any thread, with every error of the disk."""
        self._lowest_end: Offset | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @classmethod
    def open(
        cls,
        directory: Path | str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        recovery_point: Offset = Offset(0),  # noqa: B008 # a NewType of int
        log_start_offset: Offset = Offset(0),  # noqa: B008 # as above
        clean_shutdown: bool = False,
        topic_id: TopicId | None = None,
        prepare: Callable[[str], None] | None = None,
        may_be_planned: bool = False,
        is_there: bool = False,
    ) -> "PartitionLog":
        """Opens or creates the log in `directory`, recovering it as far as needed.

        `prepare` is called with a new directory before the log has any file there. A log without records
        `may_be_planned`: its first record makes the files of its segment. `is_there`: the directory is known to be.

        Raises InconsistentTopicId if the directory belongs to another topic of that name, OSError,
        KafkaStorageError for malformed checkpoints.
        """
        path = os.fspath(directory)
        fresh = not is_there and not fs.exists(path)
        may_be_planned = may_be_planned and not config.preallocated_bytes
        if fresh:
            fs.make_directory(path)
            if prepare is not None:
                prepare(path)
        if fresh and may_be_planned:
            loaded = recovery.begin(fs, path, config, clock)
        else:
            loaded = recovery.load(
                fs,
                path,
                config,
                clock,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean_shutdown=clean_shutdown or fresh,
                may_be_planned=may_be_planned,
            )
        log = cls(directory, topic_partition, config, fs, clock, loaded)
        if fresh:
            log._durability.unsynced.directories.append(os.path.dirname(path))
            log._durability.is_cut_synced = True
            if not may_be_planned:
                fs.write_bytes(f"{path}/{names.LEADER_EPOCHS}", log.leader_epochs.encode(), sync=False)
                log.leader_epochs.dirty = False
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

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
        """Raise the high watermark, at most to the log end offset; it never falls."""
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
            self._durability.unsynced.paths.append(path)
            self._durability.unsynced.directories.append(self._directory)
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

    def storage_error(self, what: str, problem: OSError) -> KafkaStorageError:
        """Reports an error of the disk; the one to raise. In any thread."""
        self.on_error(problem)
        return KafkaStorageError(f"cannot {what} {self.topic_partition} in {self._directory}: {problem}")

    def reserve_room(self, next_segment_bytes: int) -> None:
        """From now on go on upon a full disk, too, in room that is reserved: checkpoints in that of spare files, and
        batches in the active segment's, until there is so much for the next one."""
        self._files.room_bytes = next_segment_bytes
        self._flushes.has_spares = True
        keep_spare(self._fs, f"{self._directory}/{names.LEADER_EPOCHS}", len(self.leader_epochs.encode()))

    # --- append ------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        *,
        origin: Origin = Origin.CLIENT,
        verification: Verification | None = None,
        require_verification: bool = False,
        checked: CheckedBatches | None = None,
        bears_next_epoch: bool = False,
    ) -> AppendInfo:
        """Checks the batches, writes offsets and leader epoch into their headers IN PLACE, appends them.

        A client may send one batch at a time (KIP-98), other origins several. Read-only buffers are copied first.
        With `require_verification`, the first batch of a client's transaction needs its `verification` (KIP-890).
        `bears_next_epoch`: of markers, see `ProducerStates.check_marker`.
        Raises, with nothing appended: CorruptMessage, UnsupportedForMessageFormat, InvalidRecord, InvalidTimestamp,
        MessageTooLarge, RecordListTooLarge, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
        TransactionCoordinatorFenced, KafkaStorageError when it cannot be written.
        """
        view = memoryview(records)
        if view.readonly:
            view = memoryview(bytearray(view))
        now_ms = self._clock.now_ms()
        config = self.config
        if checked is None:
            view, headers = prepare_batches(view, self.log_end_offset, leader_epoch, config, origin, now_ms)
        else:
            view = view if checked.rewritten is None else checked.rewritten
            headers = checked.placed(self.log_end_offset, leader_epoch)
        duplicate = find_duplicate(
            view, headers, self.producer_state, origin, verification, require_verification, bears_next_epoch
        )
        if duplicate is not None:
            return self._duplicate(duplicate, view.nbytes)
        stamp = now_ms if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else None
        headers = assign(view, headers, leader_epoch, stamp)
        return self._append(view, headers, now_ms, NO_TIMESTAMP if stamp is None else stamp)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Appends batches as the leader wrote them; an incomplete last one is left out.

        Where records were deleted up to the midst of a batch, the whole of it comes first: an empty log that begins
        there begins with that batch.

        Raises CorruptMessage, UnsupportedForMessageFormat, KafkaStorageError; OffsetOutOfRange when they do not
        begin at or after the end of the log, or do not ascend.
        """
        view = memoryview(records)
        headers, size = check_copied(view, self.topic_partition, self.log_start_offset, self.log_end_offset)
        if not headers:
            return AppendInfo(
                self.log_end_offset, Offset(self.log_end_offset - 1), NO_TIMESTAMP, self.log_start_offset, 0, 0
            )
        start = self.log_start_offset
        if headers[0].base_offset < start:
            self.truncate_fully_and_start_at(Offset(headers[0].base_offset))
        info = self._append(view[:size], headers, self._clock.now_ms(), NO_TIMESTAMP, is_copy=True)
        self.log_start_offset = start
        return info

    def _duplicate(self, batch: ProducedBatch, size: int) -> AppendInfo:
        stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendInfo(
            Offset(batch.first_offset),
            Offset(batch.last_offset),
            batch.timestamp_ms if stamped else NO_TIMESTAMP,
            self.log_start_offset,
            size,
            batch.last_offset - batch.first_offset + 1,
            duplicate=True,
        )

    def _append(
        self,
        view: memoryview,
        headers: list[BatchHeader],
        now_ms: int,
        append_time_ms: int,
        *,
        is_copy: bool = False,
    ) -> AppendInfo:
        """A copy may be larger than a segment: its batches were written when `segment.bytes` was higher."""
        config = self.config
        size = view.nbytes
        if size > config.segment_bytes and not is_copy:
            raise RecordListTooLarge(
                f"{size} bytes in one append exceed segment.bytes, which is {config.segment_bytes}"
            )
        first, last = headers[0], headers[-1]
        max_timestamp, offset_of_max, count = first.max_timestamp, first.last_offset, first.record_count
        if first is not last:
            for header in headers[1:]:
                count += header.record_count
                if header.max_timestamp > max_timestamp:
                    max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
        last_offset = last.last_offset
        state = self.producer_state  # read again now if it is stale: it is not to have these batches yet
        try:
            segment = self._files.append(
                view, first.base_offset, last_offset, max_timestamp, offset_of_max, config, now_ms, state
            )
        except OSError as problem:
            raise self.storage_error("append to", problem) from problem
        end = int(self.log_end_offset)
        self.log_end_offset = Offset(last_offset + 1)
        epochs = self.leader_epochs
        for header in headers:
            if header.leader_epoch != epochs.latest:
                epochs.assign_batch(header.leader_epoch, end, header.base_offset)
            end = header.next_offset
            if header.producer_id >= 0:
                if header.attributes & CONTROL_FLAG:
                    end_transaction(view, header, state, segment)
                else:
                    state.add(header)
        state.end_offset = last_offset + 1
        return AppendInfo(
            Offset(first.base_offset), Offset(last_offset), append_time_ms, self.log_start_offset, size, count
        )

    # --- read --------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool, in_full: bool = False
    ) -> ReadResult | ColdRead:
        """Whole batches from the one that holds `offset`, in at most `max_bytes`, none that reaches `upper_bound`.

        A `ColdRead` if the disk would have to be waited for; with `in_full` also if there is more than a megabyte to
        read, of which otherwise the first is returned. The first batch may begin before `offset`. Data is empty at or
        past `upper_bound`, and when the first batch exceeds `max_bytes` unless `min_one_message`.
        Raises OffsetOutOfRange outside [log_start_offset, log_end_offset], CorruptMessage naming file and position,
        KafkaStorageError.
        """
        try:
            return self.reader.read(offset, max_bytes, upper_bound, min_one_message, blocking=False, in_full=in_full)
        except WouldBlock:
            return ColdRead(self.reader, (offset, max_bytes, upper_bound, min_one_message))

    def read_blocking(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> ReadResult:
        """As `read`, waiting for the disk; safe in any thread."""
        return self.reader.read(offset, max_bytes, upper_bound, min_one_message, blocking=True, in_full=True)

    def region(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_bytes: int = MIN_REGION_BYTES
    ) -> FileRegion | None:
        """What `read` would give, to be sent from the file; None if `read` has to be asked, as for less than
        `min_bytes`. Raises as it does."""
        return self.reader.region(offset, max_bytes, upper_bound, min_bytes)

    def aborted_transactions(
        self, start_offset: int, upper_bound: int, read: Buffer | FileRegion | None = None
    ) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start_offset, upper_bound); or in `read`, the batches read from there.

        A region is to be asked about before anything else happens to the log. Raises KafkaStorageError.
        """
        return self.reader.aborted_transactions(start_offset, upper_bound, read)

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record whose timestamp is at or after this; None if there is none. In any thread.

        It may lie above the high watermark. Raises CorruptMessage, KafkaStorageError.
        """
        return self.reader.first_at_or_after(timestamp_ms)

    def max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp; None if no record has one. In any thread; raises as above."""
        return self.reader.latest_timestamp()

    # --- segments and syncs ------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Begins a new segment at the end of the log, unless the active one is empty. Raises KafkaStorageError."""
        if self._segments.active.size:
            try:
                self._files.roll(self.log_end_offset, self.config, self.producer_state)
            except OSError as problem:
                raise self.storage_error("begin a segment of", problem) from problem

    @property
    def may_roll_freely(self) -> bool:
        """Whether the next segment can begin without a sync of the directory: something of the active one is synced."""
        return self._files.may_roll_freely

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

    def prepare_flush(self) -> FlushTicket | None:
        """What brings everything appended so far to the disk; None if it is there, or if the log is closed. Call
        `ticket.sync()` in any thread, then `flushed(ticket)` in this one."""
        return None if self._is_closed else self._flushes.prepare(self.log_end_offset, self.leader_epochs)

    def flushed(self, ticket: FlushTicket) -> None:
        """Moves `recovery_point`, after `ticket.sync()` has returned."""
        if not self._flushes.synced(ticket):
            self.leader_epochs.dirty = True

    def flush_failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised: all that it was to sync is unsynced still, and will be written again."""
        self._flushes.failed(ticket)
        self.leader_epochs.dirty = True

    def flush_cancelled(self, ticket: FlushTicket) -> None:
        """Takes back a ticket that nobody has synced, or will: the next one has its work."""
        self._flushes.cancelled(ticket)
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
            raise self.storage_error("flush", problem) from problem
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
        self._flushes.cancel_rewrites()
        self.leader_epochs.truncate_end(min(offset, self.log_end_offset))
        if offset >= self.log_end_offset:
            return
        if offset <= self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            last, offset = self._files.place_of(offset)
            self._move_recovery_point_back(offset)
            self.log_end_offset = self._files.cut(last, offset)
            self._ends_moved_back()
        except OSError as problem:
            raise self.storage_error("truncate", problem) from problem

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything; the log is empty and begins at `offset`. Raises KafkaStorageError."""
        self._producers.discard_load()
        self._flushes.cancel_rewrites()
        try:
            self._move_recovery_point_back(Offset(-1))
            self._files.start_over(offset, self.config)
            self.log_start_offset = self.log_end_offset = offset
            self.leader_epochs.clear()
            self._high_watermark = min(self._high_watermark, offset)
            self._ends_moved_back()
            self._high_watermark = offset
        except OSError as problem:
            raise self.storage_error("truncate", problem) from problem

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
        while producers.is_stale and not self._is_closed:
            self.load_producers()
        return producers.state

    @property
    def has_stale_producers(self) -> bool:
        """Whether `load_producers` has something to do."""
        return self._producers.is_stale

    def load_producers(self) -> None:
        """Reads what is known of producers after a truncation; in any thread, while nothing is appended. Raises
        KafkaStorageError; then it is still to be done, as when the log is truncated again meanwhile."""
        if self._is_closed:
            return
        try:
            self._producers.load(self)
        except OSError as problem:
            raise self.storage_error("read the producers of", problem) from problem

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
            self.on_start_moved()
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
        try:
            return take_breached(self, self._fs, self._files, now_ms, before)
        except OSError as problem:
            raise self.storage_error("delete segments of", problem) from problem

    @property
    def generation(self) -> int:
        """Counts truncations and failed syncs: positions seen in an earlier generation may no longer be valid."""
        return self._durability.generation

    def take_lowest_end(self) -> Offset | None:
        """The lowest offset that the log was truncated to since this was last asked; None if it was not."""
        lowest, self._lowest_end = self._lowest_end, None
        return lowest

    def holds(self, segments: Sequence[Segment], generation: int) -> bool:
        """Whether these are closed segments of the log, side by side, as they were in that generation."""
        if self._is_closed or generation != self.generation:
            return False
        return self._segments.holds(segments)

    def replace(self, old: Sequence[Segment], new: Segment) -> list[str]:
        """Has `new`, which is on the disk, in the place of segments that the log `holds`; the paths that those now have
        and that are to be removed. See `ottla.log.replacement`. Raises OSError: then the files are put in order by the
        next start, the log goes on with `new`."""
        return self._files.replace(old, new)

    def prepare_close(self) -> FlushTicket | None:
        """Writes what a closed log has more than an open one: the indexes' ends and a producer snapshot.

        When the ticket is synced and `flushed`, call `release`. Raises KafkaStorageError.
        """
        try:
            end = self.log_end_offset
            has_snapshot = end <= self.log_start_offset or self._producers.is_newest(end)
            self._files.finish(end, None if has_snapshot else self.producer_state)
        except OSError as problem:
            raise self.storage_error("close", problem) from problem
        return self.prepare_flush()

    def close(self) -> None:
        """Flushes all and leaves the files as Kafka does after a clean shutdown. Raises KafkaStorageError."""
        if self._is_closed:
            return
        ticket = self.prepare_close()
        if ticket is not None:
            self._sync(ticket)
        self.release()

    def succeed(self, before: "PartitionLog") -> None:
        """Takes the place of the log that this one is a copy of, up to the end of both. The old one must not be written
        any more, and its tickets prove nothing about this one."""
        self.leader_epochs = before.leader_epochs
        self.leader_epochs.dirty = True
        self._producers.replace(before.producer_state)
        self.log_start_offset = before.log_start_offset
        self._high_watermark = before.high_watermark
        self._durability.generation = before.generation + 1
        parent = os.path.dirname(self._directory)  # its name is as new as its last records
        self._durability.unsynced.directories.append(parent)

    def release(self) -> None:
        """Lets go of all descriptors without writing anything."""
        self._is_closed = True
        for segment in self._segments.all:
            segment.release()
