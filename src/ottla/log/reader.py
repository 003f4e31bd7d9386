"""Reads of one log: by offset, and by time."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.errors import KafkaStorageError, OffsetOutOfRange
from ottla.ids import Offset, TopicPartition
from ottla.log.file_region import FileRegion
from ottla.log.fs import WouldBlock
from ottla.log.segment import Segment
from ottla.log.segment_list import CheckedRead, ReadResult, SegmentList
from ottla.log.time_lookup import FoundOffset, first_at_or_after, latest_timestamp
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import Buffer

Found = TypeVar("Found")


class Readable(Protocol):
    """A log, as its reader needs it."""

    topic_partition: TopicPartition
    log_start_offset: Offset
    log_end_offset: Offset

    def storage_error(self, what: str, problem: OSError) -> KafkaStorageError:
        """Reports an error of the disk; the one to raise. In any thread."""
        ...


class LogReader:
    """Reads the log between its start and its end, as they are at the moment of each read.

    Owns nothing. What waits for the disk runs in any thread, the rest on the thread that owns the log. A segment may be
    retired while a thread comes for it: then the read is done again with the segments of then.
    """

    __slots__ = ("_log", "_segments")

    def __init__(self, log: Readable, segments: SegmentList) -> None:
        self._log = log
        self._segments = segments

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, min_one_message: bool, *, blocking: bool, in_full: bool
    ) -> ReadResult:
        """See `PartitionLog.read`. Raises WouldBlock unless `blocking`; then it is safe in any thread."""
        log = self._log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {log.topic_partition} is outside {log.log_start_offset}..{log.log_end_offset}"
            )
        segments = self._segments.all
        try:
            return self._segments.read(
                offset,
                max_bytes,
                upper_bound,
                log.log_end_offset,
                min_one_message=min_one_message,
                blocking=blocking,
                in_full=in_full,
            )
        except FileNotFoundError as problem:
            if segments is self._segments.all:
                raise log.storage_error("read", problem) from problem
            return self.read(offset, max_bytes, upper_bound, min_one_message, blocking=blocking, in_full=in_full)
        except OSError as problem:
            raise log.storage_error("read", problem) from problem

    def check(self, offset: int, max_bytes: int, upper_bound: int, min_one_message: bool) -> CheckedRead:
        """As `read`, waiting for the disk, without holding more than about a megabyte: what is larger stays in the
        file. Safe in any thread."""
        return self._search(
            "read",
            lambda _: self._segments.check(
                offset, max_bytes, upper_bound, self._log.log_end_offset, min_one_message=min_one_message
            ),
        )

    def region(self, offset: int, max_bytes: int, upper_bound: int, min_bytes: int) -> FileRegion | None:
        """See `PartitionLog.region`."""
        if not self._log.log_start_offset <= offset < upper_bound:
            return None
        try:
            return self._segments.region(offset, max_bytes, upper_bound, self._log.log_end_offset, min_bytes)
        except (WouldBlock, OSError):
            return None

    def aborted_transactions(
        self, start_offset: int, upper_bound: int, read: Buffer | FileRegion | None
    ) -> list[AbortedTransaction]:
        """See `PartitionLog.aborted_transactions`."""
        try:
            return self._segments.aborted_transactions(start_offset, upper_bound, self._log.log_end_offset, read)
        except OSError as problem:
            raise self._log.storage_error("read the aborted transactions of", problem) from problem

    def first_at_or_after(self, timestamp_ms: int) -> FoundOffset | None:
        """See `PartitionLog.offset_for_timestamp`. In any thread."""
        return self._search(
            "search", lambda segments: first_at_or_after(segments, timestamp_ms, self._log.log_start_offset)
        )

    def latest_timestamp(self) -> FoundOffset | None:
        """See `PartitionLog.max_timestamp`. In any thread."""
        return self._search("search", lambda segments: latest_timestamp(segments, self._log.log_start_offset))

    def _search(self, what: str, search: Callable[[list[Segment]], Found]) -> Found:
        while True:
            segments = self._segments.all
            try:
                return search(segments)
            except FileNotFoundError as problem:
                if segments is self._segments.all:
                    raise self._log.storage_error(what, problem) from problem
            except OSError as problem:
                raise self._log.storage_error(what, problem) from problem


class ColdRead:
    """A read that has to wait for the disk: call `run` or `check` in a thread; once."""

    __slots__ = ("_reader", "_request")

    def __init__(self, reader: LogReader, request: tuple[int, int, int, bool]) -> None:
        self._reader = reader
        self._request = request

    def run(self) -> ReadResult:
        """What `PartitionLog.read` would have returned. Raises as it does."""
        return self._reader.read(*self._request, blocking=True, in_full=True)

    def check(self, most_bytes: int) -> CheckedRead:
        """As `run`, but of at most so many bytes (or one batch), which stay in the file if they are worth it, to be
        sent from there."""
        offset, max_bytes, upper_bound, min_one_message = self._request
        return self._reader.check(offset, min(max_bytes, most_bytes), upper_bound, min_one_message)
