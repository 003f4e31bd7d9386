"""One partition's log: append, read, truncate, roll.

Synchronous and unlocked: one thread owns it (the event loop's). Handed out to other threads are only `ColdRead`s and
`FlushTicket`s, which hold their files open themselves.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.config.log import LogConfig, TimestampType
from ottla.errors import (
    CorruptMessage,
    InconsistentTopicId,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from ottla.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.log import checkpoints, names, recovery
from ottla.log.file_region import FileRegion
from ottla.log.flush import FlushTicket, Rewrite, Unsynced
from ottla.log.fs import FileSystem, WouldBlock
from ottla.log.leader_epochs import EpochEnd
from ottla.log.producer_state import Origin, ProducedBatch, ProducerState
from ottla.log.retention import Deletion, breached_count
from ottla.log.scan import find_batch
from ottla.log.segment import Segment
from ottla.log.time_lookup import FoundOffset, first_at_or_after, latest_timestamp
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import assign, prepare_batches
from ottla.records.batch import CONTROL_FLAG, NO_TIMESTAMP, BatchHeader, Buffer, is_intact, iter_batches
from ottla.records.control import EndTransaction, decode_end_transaction

logger: Final = logging.getLogger(__name__)

_base_offset: Final = attrgetter("base_offset")


def _nothing() -> None:
    """For a log that nobody keeps checkpoints for."""


class AppendInfo(NamedTuple):
    """What an append has done. For a duplicate: what the original has done, and `duplicate` is set."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 unless the topic stamps records with it."""
    log_start_offset: Offset
    size_bytes: int
    record_count: int
    duplicate: bool = False


class ReadResult(NamedTuple):
    """Whole batches, and where they came from."""

    data: Buffer
    segment_base_offset: Offset
    position: int
    """Of `data` in the segment's file."""


class ColdRead:
    """A read that has to wait for the disk: call `run` in a thread; once."""

    __slots__ = ("_log", "_request")

    def __init__(self, log: "PartitionLog", request: tuple[int, int, int, bool]) -> None:
        self._log = log
        self._request = request

    def run(self) -> ReadResult:
        """What `PartitionLog.read` would have returned. Raises as it does."""
        offset, max_bytes, upper_bound, min_one_message = self._request
        return self._log.read_blocking(offset, max_bytes, upper_bound=upper_bound, min_one_message=min_one_message)


class PartitionLog:
    """The log of one partition, in one directory."""

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
        self.producer_state: ProducerState = loaded.producer_state
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
        self._unsynced = Unsynced()
        if loaded.changed:
            self._unsynced.directories.append(self._directory)
            self._unsynced.active_cut = True
        self._generation = 0
        """Counts truncations and failed syncs: a ticket taken before one says nothing about the log after it."""
        self._sync_failed = loaded.recovery_point < loaded.end_offset
        """A sync has failed, or may have in the process before: see `ottla.log.flush`."""
        self.on_moving_back: Callable[[], None] = _nothing
        """Called before a truncation below the recovery point, when that has been lowered: to write it down, lest a
        crash takes what is appended later for synced. May raise OSError."""
        self._rewrites: list[Rewrite] = []
        self._closed = False
        self._jitter_ms = 0
        if self.recovery_point < self.log_end_offset:
            first = max(0, bisect_right(self._segments, self.recovery_point, key=_base_offset) - 1)
            self._unsynced.segments = loaded.segments[first:-1]

    @classmethod
    def open(
        cls,
        directory: Path,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        recovery_point: Offset = Offset(0),  # noqa: B008 # a NewType of int
        log_start_offset: Offset = Offset(0),  # noqa: B008 # as above
        clean_shutdown: bool = False,
        topic_id: TopicId | None = None,
    ) -> "PartitionLog":
        """Opens or creates the log in `directory`, recovering it as far as needed.

        Raises InconsistentTopicId if the directory belongs to another topic of that name, OSError,
        KafkaStorageError for malformed checkpoints.
        """
        path = os.fspath(directory)
        fresh = not fs.exists(path)
        if fresh:
            fs.make_directory(path)
        loaded = recovery.load(
            fs,
            path,
            config,
            clock,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=clean_shutdown or fresh,
        )
        log = cls(directory, topic_partition, config, fs, clock, loaded)
        if fresh:
            log._unsynced.directories.append(os.path.dirname(path))
            log.leader_epochs.dirty = True
            log._write_epochs(sync=False)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

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

    # --- append ------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: Buffer, leader_epoch: LeaderEpoch, *, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Checks the batches, writes offsets and leader epoch into their headers IN PLACE, appends them.

        A client may send one batch at a time (KIP-98), other origins several. Read-only buffers are copied first.
        Raises, with nothing appended: CorruptMessage, UnsupportedForMessageFormat, InvalidRecord, InvalidTimestamp,
        MessageTooLarge, RecordListTooLarge, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
        TransactionCoordinatorFenced, KafkaStorageError when it cannot be written.
        """
        view = memoryview(records)
        if view.readonly:
            view = memoryview(bytearray(view))
        now_ms = self._clock.now_ms()
        config = self.config
        view, headers = prepare_batches(view, self.log_end_offset, leader_epoch, config, origin, now_ms)
        state = self.producer_state
        for header in headers:
            if header.producer_id < 0:
                continue
            if header.attributes & CONTROL_FLAG:
                marker = decode_end_transaction(view, header)
                if marker is not None:
                    state.check_marker(header, marker, origin)
                continue
            if origin is Origin.CLIENT:
                duplicate = state.find_duplicate(header)
                if duplicate is not None:
                    return self._duplicate(duplicate, view.nbytes)
            state.check(header, origin)
        stamp = now_ms if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else None
        headers = assign(view, headers, leader_epoch, stamp)
        return self._append(view, headers, now_ms, NO_TIMESTAMP if stamp is None else stamp)

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Appends batches as the leader wrote them; an incomplete last one is left out.

        Raises CorruptMessage, UnsupportedForMessageFormat, KafkaStorageError; OffsetOutOfRange when they do not
        begin at or after the end of the log, or do not ascend.
        """
        view = memoryview(records)
        headers: list[BatchHeader] = []
        next_offset: int = self.log_end_offset
        size = 0
        for header in iter_batches(view, allow_partial_end=True):
            if header.base_offset < next_offset:
                raise OffsetOutOfRange(
                    f"{self.topic_partition}: a batch at offset {header.base_offset} was to follow {next_offset}"
                )
            if not is_intact(view, header):
                raise CorruptMessage(
                    f"{self.topic_partition}: the batch at offset {header.base_offset} arrived with a wrong CRC"
                )
            headers.append(header)
            next_offset = header.next_offset
            size = header.end_position
        if not headers:
            return AppendInfo(
                self.log_end_offset, Offset(self.log_end_offset - 1), NO_TIMESTAMP, self.log_start_offset, 0, 0
            )
        return self._append(view[:size], headers, self._clock.now_ms(), NO_TIMESTAMP)

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

    def _append(self, view: memoryview, headers: list[BatchHeader], now_ms: int, append_time_ms: int) -> AppendInfo:
        config = self.config
        size = view.nbytes
        if size > config.segment_bytes:
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
        segment = self._active
        try:
            if segment.should_roll(
                size_bytes=size,
                last_offset=last_offset,
                max_timestamp_ms=max_timestamp,
                now_ms=now_ms,
                segment_bytes=config.segment_bytes,
                segment_ms=config.segment_ms - self._jitter_ms,
                segment_index_bytes=config.segment_index_bytes,
            ):
                segment = self._roll(first.base_offset)
            segment.append(
                view,
                first_offset=first.base_offset,
                last_offset=last_offset,
                max_timestamp_ms=max_timestamp,
                offset_of_max_timestamp=offset_of_max,
                index_interval_bytes=config.index_interval_bytes,
            )
        except OSError as problem:
            raise self._storage_error("append to", problem) from problem
        self.log_end_offset = Offset(last_offset + 1)
        state = self.producer_state
        epochs = self.leader_epochs
        for header in headers:
            if header.leader_epoch != epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                if header.attributes & CONTROL_FLAG:
                    self._end_transaction(view, header, segment)
                else:
                    state.add(header)
        state.end_offset = last_offset + 1
        return AppendInfo(
            Offset(first.base_offset), Offset(last_offset), append_time_ms, self.log_start_offset, size, count
        )

    def _end_transaction(self, view: memoryview, header: BatchHeader, segment: Segment) -> None:
        marker: EndTransaction | None = decode_end_transaction(view, header)
        if marker is None:
            return
        completed = self.producer_state.end_transaction(header, marker)
        if completed is None:
            return
        aborted = self.producer_state.complete(completed)
        if aborted is not None:
            try:
                segment.transaction_index.append(aborted)
            except OSError as problem:
                logger.error("%s: %s; it will be written with the next", segment.transaction_index.path, problem)

    def _storage_error(self, what: str, problem: OSError) -> KafkaStorageError:
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
        old.finish()
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
        return segment

    def _set_segments(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._active = segments[-1]

    def _write_snapshot(self, offset: int) -> None:
        path = names.segment_file(self._directory, offset, names.PRODUCER_SNAPSHOT)
        self._fs.write_bytes(path, self.producer_state.encode(), sync=False)
        self._unsynced.paths.append(path)
        self._unsynced.directories.append(self._directory)
        self._snapshot_end = offset
        if offset not in self._snapshots:
            self._snapshots.append(offset)

    def _write_epochs(self, *, sync: bool) -> None:
        epochs = self.leader_epochs
        if epochs.dirty:
            path = f"{self._directory}/{names.LEADER_EPOCHS}"
            if sync:
                checkpoints.write(self._fs, path, epochs.encode())
            else:
                self._fs.write_bytes(path, epochs.encode(), sync=False)
            epochs.dirty = False

    # --- read --------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> ReadResult | ColdRead:
        """Whole batches from the one that holds `offset`, in at most `max_bytes`, none that reaches `upper_bound`.

        A `ColdRead` if the disk would have to be waited for. The first batch may begin before `offset`. Data is empty
        at or past `upper_bound`, and when the first batch exceeds `max_bytes` unless `min_one_message`.
        Raises OffsetOutOfRange outside [log_start_offset, log_end_offset], CorruptMessage naming file and position,
        KafkaStorageError.
        """
        try:
            return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=False)
        except WouldBlock:
            return ColdRead(self, (offset, max_bytes, upper_bound, min_one_message))

    def read_blocking(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> ReadResult:
        """As `read`, waiting for the disk; safe in any thread."""
        return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=True)

    def region(self, offset: int, max_bytes: int, *, upper_bound: int) -> FileRegion | None:
        """What `read` would give, to be sent from the file; None if `read` has to be asked. Raises as it does."""
        if not self.log_start_offset <= offset < upper_bound:
            return None
        try:
            found = self._find(offset, upper_bound, blocking=False)
            return None if found is None else found[0].region(found[1], max_bytes, found[2])
        except (WouldBlock, OSError):
            return None

    def _read(
        self, offset: int, max_bytes: int, upper_bound: int, min_one_message: bool, *, blocking: bool
    ) -> ReadResult:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is outside {self.log_start_offset}..{self.log_end_offset}"
            )
        segments = self._segments
        try:
            found = self._find(offset, upper_bound, blocking=blocking) if offset < upper_bound else None
            if found is not None:
                segment, position, end = found
                data = segment.read(position, max_bytes, end, min_one_message=min_one_message, blocking=blocking)
                return ReadResult(data, Offset(segment.base_offset), position)
        except FileNotFoundError as problem:  # a thread came for a segment that has just been retired
            if segments is self._segments:
                raise self._storage_error("read", problem) from problem
            return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=blocking)
        except OSError as problem:
            raise self._storage_error("read", problem) from problem
        nearest = segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1)]
        return ReadResult(b"", Offset(nearest.base_offset), nearest.size)

    def _find(self, offset: int, upper_bound: int, *, blocking: bool) -> tuple[Segment, int, int] | None:
        """The segment to read `offset` from, where its batch begins, and where what may be read ends; None if there
        is nothing below `upper_bound`. Raises WouldBlock, CorruptMessage, OSError."""
        end_offset = self.log_end_offset
        segments = self._segments
        last = len(segments) - 1
        number = last
        if offset < segments[last].base_offset:
            number = bisect_right(segments, offset, key=_base_offset) - 1
        while number <= last:
            segment = segments[number]
            end = segment.size
            position = segment.position_of(offset, blocking=blocking)
            if upper_bound < end_offset and (number == last or upper_bound < segments[number + 1].base_offset):
                end = min(end, segment.position_of(upper_bound, blocking=blocking))
            if position < end:
                return segment, position, end
            if end < segment.size:
                return None
            number += 1
        return None

    def aborted_transactions(self, start_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start_offset, upper_bound). Raises KafkaStorageError."""
        found: list[AbortedTransaction] = []
        number = max(0, bisect_right(self._segments, start_offset, key=_base_offset) - 1)
        try:
            for segment in self._segments[number:]:
                some, complete = segment.transaction_index.overlapping(start_offset, upper_bound)
                found += some
                if complete:
                    break
        except OSError as problem:
            raise self._storage_error("read the aborted transactions of", problem) from problem
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record whose timestamp is at or after this; None if there is none. In any thread.

        It may lie above the high watermark. Raises CorruptMessage, KafkaStorageError.
        """
        try:
            return first_at_or_after(self._segments, timestamp_ms, self.log_start_offset)
        except OSError as problem:
            raise self._storage_error("search", problem) from problem

    def max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp; None if no record has one. In any thread; raises as above."""
        try:
            return latest_timestamp(self._segments, self.log_start_offset)
        except OSError as problem:
            raise self._storage_error("search", problem) from problem

    # --- flush -------------------------------------------------------------------------------------------------

    def prepare_flush(self) -> FlushTicket | None:
        """What brings everything appended so far to the disk; None if it is there. Call `ticket.sync()` in any
        thread, then `flushed(ticket)` in this one."""
        dirty = self.recovery_point < self.log_end_offset or self._unsynced.active_cut
        if not (dirty or self._unsynced or self.leader_epochs.dirty):
            return None
        work, self._unsynced = self._unsynced, Unsynced()
        segments = list(work.segments)
        for segment in segments:
            work.paths.extend(segment.file_paths()[1:])
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
            generation=self._generation,
            segments=segments,
            work=work,
            checkpoint_files=checkpoint_files,
            rewrites=self._rewrites,
            failure=failure,
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
        if ticket.generation != self._generation:
            return
        if ticket.rewrites:
            self._sync_failed = False
        if ticket.end_offset > self.recovery_point:
            self.recovery_point = ticket.end_offset

    def flush_failed(self, ticket: FlushTicket) -> None:
        """After `ticket.sync()` has raised: all that it was to sync is unsynced still, and will be written again."""
        alive = set(map(id, self._segments))
        ticket.work.segments = [segment for segment in ticket.work.segments if id(segment) in alive]
        self._unsynced.add(ticket.work)
        self.leader_epochs.dirty = True
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

    def truncate_to(self, offset: Offset) -> None:
        """Drops all from `offset` on (and the rest of the batch that it falls into). Raises KafkaStorageError."""
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
            self._reload_producers()
        except OSError as problem:
            raise self._storage_error("truncate", problem) from problem

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything; the log is empty and begins at `offset`. Raises KafkaStorageError."""
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
            self._reload_producers()
        except OSError as problem:
            raise self._storage_error("truncate", problem) from problem

    def _move_recovery_point_back(self, offset: Offset) -> None:
        if offset < self.recovery_point:
            self.recovery_point = Offset(max(offset, 0))
            self.log_start_offset = min(self.log_start_offset, self.recovery_point)
            self.on_moving_back()

    def _ends_moved_back(self) -> None:
        end = self.log_end_offset
        self._generation += 1
        self.recovery_point = min(self.recovery_point, end)
        self._high_watermark = min(self._high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self._unsynced.directories.append(self._directory)
        self._unsynced.active_cut = True
        alive = set(map(id, self._segments))
        self._unsynced.segments = [segment for segment in self._unsynced.segments if id(segment) in alive]

    def _reload_producers(self) -> None:
        end = self.log_end_offset
        self._snapshot_end = -1
        self.producer_state, self._snapshots = recovery.producer_state(
            self._fs, self._directory, self._segments, self._snapshots, self.log_start_offset, end, self._clock.now_ms()
        )

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
        cut off what follows. Call `Deletion.remove()` in a thread. Raises KafkaStorageError.
        """
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
        segment.release()
        renamed = []
        for path in paths:
            try:
                self._fs.rename(path, path + names.DELETED)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)
                continue
            renamed.append(path + names.DELETED)
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
                self._write_snapshot(end)
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

    def release(self) -> None:
        """Lets go of all descriptors without writing anything."""
        self._closed = True
        for segment in self._segments:
            segment.release()
