"""The segments of one log: which one an offset is in, and what is read across them.

The list is replaced, never changed, so that a thread that reads has a consistent one. A thread that comes for a segment
which has just been retired gets FileNotFoundError: it has to look again if the list is another one then.
"""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.ids import Offset
from ottla.log import names
from ottla.log.file_region import FileRegion
from ottla.log.fs import FileSystem, WouldBlock
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import BASE_OFFSET, Buffer, last_batch, read_header

logger: Final = logging.getLogger(__name__)

_base_offset: Final = attrgetter("base_offset")


class ReadResult(NamedTuple):
    """Whole batches, and where they came from."""

    data: Buffer
    segment_base_offset: Offset
    position: int
    """Position of `data` in the segment's file, in bytes."""


class CheckedRead(NamedTuple):
    """Whole batches that have been checked; large ones stay in their file."""

    data: Buffer | FileRegion
    next_offset: int
    """Behind the last of them; -1 if there are none."""


class SegmentList:
    """Ascending; the last one is active. Offsets of reads are within the log, which ends at `end_offset`."""

    __slots__ = ("_fs", "active", "all")

    def __init__(self, fs: FileSystem, segments: list[Segment]) -> None:
        self._fs = fs
        self.all = segments
        self.active = segments[-1]

    def replace(self, segments: list[Segment]) -> None:
        """Has these from now on."""
        self.all = segments
        self.active = segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self.all)

    def number_of(self, offset: int) -> int:
        """Which segment the offset belongs to; 0 for one before all of them."""
        return max(0, bisect_right(self.all, offset, key=_base_offset) - 1)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these are closed segments of the log, side by side."""
        first = bisect_right(self.all, segments[0].base_offset, key=_base_offset) - 1
        here = self.all[first:-1][: len(segments)] if first >= 0 else []
        return len(here) == len(segments) and all(one is other for one, other in zip(here, segments, strict=True))

    # --- read --------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_bound: int,
        end_offset: int,
        *,
        min_one_message: bool,
        blocking: bool,
        in_full: bool,
    ) -> ReadResult:
        """See `PartitionLog.read`. Raises WouldBlock, CorruptMessage, OSError."""
        segments = self.all
        found = self.find(offset, upper_bound, end_offset, blocking=blocking) if offset < upper_bound else None
        if found is None:
            nearest = segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1)]
            return ReadResult(b"", Offset(nearest.base_offset), nearest.size)
        segment, position, end = found
        if in_full and not blocking and segment.is_long(position, max_bytes, end):
            raise WouldBlock
        data = segment.read(position, max_bytes, end, min_one_message=min_one_message, blocking=blocking)
        if len(data) and BASE_OFFSET.unpack_from(data)[0] > offset:
            self._check_gap(segments, segment, position, BASE_OFFSET.unpack_from(data)[0], end_offset)
        if blocking:
            segment.prefetch(position + len(data))
        return ReadResult(data, Offset(segment.base_offset), position)

    def check(
        self, offset: int, max_bytes: int, upper_bound: int, end_offset: int, *, min_one_message: bool
    ) -> CheckedRead:
        """See `LogReader.check`. Raises CorruptMessage, OSError."""
        segments = self.all
        found = self.find(offset, upper_bound, end_offset, blocking=True) if offset < upper_bound else None
        if found is None:
            return CheckedRead(b"", -1)
        segment, position, end = found
        data, last = segment.check(position, max_bytes, end, min_one_message=min_one_message)
        if not len(last):
            return CheckedRead(b"", -1)
        begins = segment.header_at(position, blocking=True).base_offset
        if begins > offset:
            self._check_gap(segments, segment, position, begins, end_offset)
        segment.prefetch(position + len(data))
        return CheckedRead(data, read_header(last, last_batch(last)).next_offset)

    def region(
        self, offset: int, max_bytes: int, upper_bound: int, end_offset: int, min_bytes: int
    ) -> FileRegion | None:
        """See `PartitionLog.region`. Raises WouldBlock, CorruptMessage, OSError."""
        found = self.find(offset, upper_bound, end_offset, blocking=False)
        return None if found is None else found[0].region(found[1], max_bytes, found[2], min_bytes)

    @staticmethod
    def _check_gap(segments: list[Segment], segment: Segment, position: int, begins: int, log_end_offset: int) -> None:
        """A batch that begins after the offset that was looked for, as compaction leaves them, belongs into its segment
        all the same: its base offset is outside its CRC. Raises CorruptMessage."""
        number = segments.index(segment)
        end = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        if begins >= end:
            raise segment.corrupt(position, f"it begins at offset {begins}, the segment ends at {end}")

    def find(
        self, offset: int, upper_bound: int, end_offset: int, *, blocking: bool
    ) -> tuple[Segment, int, int] | None:
        """The segment to read `offset` from, where its batch begins, and where what may be read ends; None if there
        is nothing below `upper_bound`. Raises WouldBlock, CorruptMessage, OSError."""
        segments = self.all
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

    def aborted_transactions(
        self, start_offset: int, upper_bound: int, end_offset: int, read: Buffer | FileRegion | None
    ) -> list[AbortedTransaction]:
        """See `PartitionLog.aborted_transactions`. Raises OSError."""
        found: list[AbortedTransaction] = []
        number = self.number_of(start_offset)
        indexes = [index for segment in self.all[number:] if not (index := segment.transaction_index).is_empty]
        if read is not None and indexes:
            upper_bound = min(upper_bound, self._end_of(read, start_offset, upper_bound, end_offset))
        for index in indexes:
            some, complete = index.overlapping(start_offset, upper_bound)
            found += some
            if complete:
                break
        return found

    def _end_of(self, read: Buffer | FileRegion, offset: int, upper_bound: int, end_offset: int) -> int:
        """The offset behind what was read; `upper_bound` where it is not at hand."""
        try:
            if not isinstance(read, FileRegion):
                return read_header(read, last_batch(read)).next_offset
            found = self.find(offset, upper_bound, end_offset, blocking=False)
            if found is not None and found[1] + len(read) < found[2]:
                return found[0].header_at(found[1] + len(read), blocking=False).base_offset
        except (WouldBlock, CorruptMessage):
            return upper_bound
        return upper_bound

    # --- files of segments that have left the list -------------------------------------------------------------

    def retire(self, segment: Segment, snapshot: str | None) -> list[str]:
        """Renames a segment's files, and its snapshot of producers; their new paths. Raises OSError."""
        renamed = []
        for path in [*segment.file_paths(), *([] if snapshot is None else [snapshot])]:
            try:
                self._fs.rename(path, path + names.DELETED)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)
                continue
            renamed.append(path + names.DELETED)
        segment.retire()
        return renamed

    def remove(self, segment: Segment, snapshot: str | None) -> None:
        """Removes a segment's files, and its snapshot of producers. Raises OSError."""
        for path in [*segment.file_paths(), *([] if snapshot is None else [snapshot])]:
            try:
                self._fs.remove(path)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)
        segment.release()
