"""One partition's log: append and read.

Synchronous and unlocked: one thread owns it (the event loop's). Handed out to other threads are only `ColdRead`s and
`FlushTicket`s, which hold their files open themselves.
"""

import errno
import logging
import os
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from ottla.clock import Clock
from ottla.config.log import LogConfig, TimestampType
from ottla.errors import (
    CorruptMessage,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from ottla.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from ottla.log import recovery
from ottla.log.file_region import MIN_REGION_BYTES, FileRegion
from ottla.log.fs import FileSystem, WouldBlock
from ottla.log.log_files import LogFiles
from ottla.log.producer_state import Origin, ProducedBatch, Verification
from ottla.log.segment import Segment
from ottla.log.segment_list import CheckedRead, ReadResult
from ottla.log.time_lookup import FoundOffset, first_at_or_after, latest_timestamp
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import CheckedBatches, assign, prepare_batches
from ottla.records.batch import (
    CONTROL_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    is_intact,
    iter_batches,
)
from ottla.records.control import EndTransaction, decode_end_transaction

logger: Final = logging.getLogger(__name__)

_base_offset: Final = attrgetter("base_offset")


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


class ColdRead:
    """A read that has to wait for the disk: call `run` or `check` in a thread; once."""

    __slots__ = ("_log", "_request")

    def __init__(self, log: "PartitionLog", request: tuple[int, int, int, bool]) -> None:
        self._log = log
        self._request = request

    def run(self) -> ReadResult:
        """What `PartitionLog.read` would have returned. Raises as it does."""
        offset, max_bytes, upper_bound, min_one_message = self._request
        return self._log.read_blocking(offset, max_bytes, upper_bound=upper_bound, min_one_message=min_one_message)

    def check(self, most_bytes: int) -> CheckedRead:
        """As `run`, but of at most so many bytes (or one batch), which stay in the file if they are worth it, to be
        sent from there."""
        offset, max_bytes, upper_bound, min_one_message = self._request
        return self._log.check_blocking(
            offset, min(max_bytes, most_bytes), upper_bound=upper_bound, min_one_message=min_one_message
        )


class PartitionLog(LogFiles):
    """The log of one partition, in one directory."""

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
        prepare: Callable[[str], None] | None = None,
    ) -> "PartitionLog":
        """Opens or creates the log in `directory`, recovering it as far as needed.

        `prepare` is called with a new directory before the log has any file there.

        Raises InconsistentTopicId if the directory belongs to another topic of that name, OSError,
        KafkaStorageError for malformed checkpoints.
        """
        path = os.fspath(directory)
        fresh = not fs.exists(path)
        if fresh:
            fs.make_directory(path)
            if prepare is not None:
                prepare(path)
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
            log._durability.is_cut_synced = True
            log.leader_epochs.dirty = True
            log._write_epochs(sync=False)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

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
        state = self.producer_state
        for header in headers:
            if header.producer_id < 0:
                continue
            if header.attributes & CONTROL_FLAG:
                marker = decode_end_transaction(view, header)
                if marker is not None:
                    state.check_marker(header, marker, origin, bears_next_epoch=bears_next_epoch)
                continue
            if origin is Origin.CLIENT:
                duplicate = state.find_duplicate(header)
                if duplicate is not None:
                    return self._duplicate(duplicate, view.nbytes)
                if header.attributes & TRANSACTIONAL_FLAG:
                    state.check_transaction(header, verification, required=require_verification)
            state.check(header, origin)
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
        headers: list[BatchHeader] = []
        next_offset: int = self.log_end_offset
        size = 0
        for header in iter_batches(view, allow_partial_end=True):
            is_first = not headers and self.log_start_offset == self.log_end_offset < header.next_offset
            if header.base_offset < next_offset and not is_first:
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
        segment = self._segments.active
        try:
            if segment.should_roll(
                size_bytes=size,
                last_offset=last_offset,
                max_timestamp_ms=max_timestamp,
                now_ms=now_ms,
                segment_bytes=config.segment_bytes,
                segment_ms=config.longest_segment_ms - self._jitter_ms,
                segment_index_bytes=config.segment_index_bytes,
            ):
                segment = self._roll(first.base_offset)
            for is_last in (not segment.size, True):
                try:
                    segment.append(
                        view,
                        first_offset=first.base_offset,
                        last_offset=last_offset,
                        max_timestamp_ms=max_timestamp,
                        offset_of_max_timestamp=offset_of_max,
                        index_interval_bytes=config.index_interval_bytes,
                    )
                    break
                except OSError as problem:
                    if is_last or problem.errno != errno.EFBIG:
                        raise
                    # A limit of the process or filesystem, below segment.bytes: another file takes as much again.
                    segment = self._roll(first.base_offset)
        except OSError as problem:
            raise self._storage_error("append to", problem) from problem
        self.log_end_offset = Offset(last_offset + 1)
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
                path = segment.transaction_index.path
                said = problem.strerror or problem
                logger.error("cannot note an aborted transaction in %s: %s; it goes with the next", path, said)

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
            return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=False, in_full=in_full)
        except WouldBlock:
            return ColdRead(self, (offset, max_bytes, upper_bound, min_one_message))

    def read_blocking(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> ReadResult:
        """As `read`, waiting for the disk; safe in any thread."""
        return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=True, in_full=True)

    def check_blocking(self, offset: int, max_bytes: int, *, upper_bound: int, min_one_message: bool) -> CheckedRead:
        """As `read_blocking`, without holding more than about a megabyte: what is larger stays in the file."""
        segments = self._segments.all
        try:
            return self._segments.check(
                offset, max_bytes, upper_bound, self.log_end_offset, min_one_message=min_one_message
            )
        except FileNotFoundError as problem:  # as in `_read`
            if segments is self._segments.all:
                raise self._storage_error("read", problem) from problem
            return self.check_blocking(offset, max_bytes, upper_bound=upper_bound, min_one_message=min_one_message)
        except OSError as problem:
            raise self._storage_error("read", problem) from problem

    def region(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_bytes: int = MIN_REGION_BYTES
    ) -> FileRegion | None:
        """What `read` would give, to be sent from the file; None if `read` has to be asked, as for less than
        `min_bytes`. Raises as it does."""
        if not self.log_start_offset <= offset < upper_bound:
            return None
        try:
            return self._segments.region(offset, max_bytes, upper_bound, self.log_end_offset, min_bytes)
        except (WouldBlock, OSError):
            return None

    def _read(
        self, offset: int, max_bytes: int, upper_bound: int, min_one_message: bool, *, blocking: bool, in_full: bool
    ) -> ReadResult:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is outside {self.log_start_offset}..{self.log_end_offset}"
            )
        segments = self._segments.all
        try:
            return self._segments.read(
                offset,
                max_bytes,
                upper_bound,
                self.log_end_offset,
                min_one_message=min_one_message,
                blocking=blocking,
                in_full=in_full,
            )
        except FileNotFoundError as problem:  # a thread came for a segment that has just been retired
            if segments is self._segments.all:
                raise self._storage_error("read", problem) from problem
            return self._read(offset, max_bytes, upper_bound, min_one_message, blocking=blocking, in_full=in_full)
        except OSError as problem:
            raise self._storage_error("read", problem) from problem

    def aborted_transactions(
        self, start_offset: int, upper_bound: int, read: Buffer | FileRegion | None = None
    ) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start_offset, upper_bound); or in `read`, the batches read from there.

        A region is to be asked about before anything else happens to the log. Raises KafkaStorageError.
        """
        try:
            return self._segments.aborted_transactions(start_offset, upper_bound, self.log_end_offset, read)
        except OSError as problem:
            raise self._storage_error("read the aborted transactions of", problem) from problem

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record whose timestamp is at or after this; None if there is none. In any thread.

        It may lie above the high watermark. Raises CorruptMessage, KafkaStorageError.
        """
        return self._search(lambda segments: first_at_or_after(segments, timestamp_ms, self.log_start_offset))

    def max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp; None if no record has one. In any thread; raises as above."""
        return self._search(lambda segments: latest_timestamp(segments, self.log_start_offset))

    def _search(self, search: Callable[[list[Segment]], FoundOffset | None]) -> FoundOffset | None:
        while True:
            segments = self._segments.all
            try:
                return search(segments)
            except FileNotFoundError as problem:
                if segments is self._segments.all:
                    raise self._storage_error("search", problem) from problem
            except OSError as problem:
                raise self._storage_error("search", problem) from problem
