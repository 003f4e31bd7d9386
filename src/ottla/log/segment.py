"""One segment of a partition's log: a `.log` file of batches end to end, with its indexes.

Reads never wait for the disk unless `blocking=True`: bytes that are not in memory raise `WouldBlock`.

Bit flips. Bytes appended by this process were checked then. All others are checked against their batch's CRC when
they are first read, and again after the kernel has shown (by RWF_NOWAIT) that it had dropped pages of the segment:
only a read from the disk can bring a flipped bit. Checked parts are remembered as ranges of the file, so a
consumer that follows the end, or one that comes second, pays for no CRC. On the machine this was written on, CRC-32C
runs at 14 GB/s: 73 µs for 1 MB beside 37 µs for the read itself; the memory of it makes reads three times cheaper.
"""

import logging
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.log import names
from ottla.log.checked_ranges import CheckedRanges
from ottla.log.decisions.intact import WALK, follows, intact_prefix
from ottla.log.file_region import MIN_REGION_BYTES, FileRegion
from ottla.log.fs import File, FileSystem, WouldBlock
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex, TimestampOffset
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import (
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)

logger: Final = logging.getLogger(__name__)

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_SCAN_BYTES: Final = 4096
_STEP_BYTES: Final = 1 << 20
"""How much is read and checked at a time; more than this is never checked on the loop."""
_PREFETCH_BYTES: Final = 4 << 20
_REMEMBERED_POSITIONS: Final = 2048


class Span(NamedTuple):
    """Where a batch lies in its segment's file."""

    position: int
    size_bytes: int


class Segment:
    """Offsets from `base_offset` up to the next segment's. One thread appends; any may read meanwhile."""

    __slots__ = (
        "_bytes_since_entry",
        "_checked",
        "_directory",
        "_file",
        "_first_timestamp_ms",
        "_fs",
        "_max_timestamp",
        "_older_positions",
        "_positions",
        "_preallocated",
        "_suffix",
        "base_offset",
        "created_ms",
        "is_made",
        "needs_cut",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        log_bytes: int = 0,
        offset_index_bytes: int = 0,
        time_index_bytes: int = 0,
        transaction_index_bytes: int = 0,
        suffix: str = "",
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = log_bytes
        """Valid bytes of the `.log`: those of complete appends."""
        self.needs_cut = False
        """A failed append may have left bytes past `size` that could not be cut off yet."""
        self.offset_index = OffsetIndex(fs, self._path(names.OFFSET_INDEX), base_offset, offset_index_bytes)
        self.time_index = TimeIndex(fs, self._path(names.TIME_INDEX), base_offset, time_index_bytes)
        self.transaction_index = TransactionIndex(fs, self._path(names.TRANSACTION_INDEX), transaction_index_bytes)
        self._file: File | None = None
        self._bytes_since_entry = 0
        self._max_timestamp: TimestampOffset | None = None if log_bytes else self.time_index.last()
        self._first_timestamp_ms: int | None = None
        self._checked = CheckedRanges()
        self._positions: dict[int, int] = {}
        self._older_positions: dict[int, int] = {}
        self._preallocated = False
        """Is the file longer than `size`, to make room for later batches?"""
        self.is_made = True
        """Whether it has files: the first segment of a log has none before its first record."""

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        preallocated_bytes: int = 0,
        suffix: str = "",
    ) -> "Segment":
        """A new, empty segment with its files; compaction adds a suffix to their names. Raises OSError, having
        removed what it made.

        With `preallocated_bytes` the `.log` has that length at once (`preallocate`), and is cut to what it holds by
        `finish`. As in Kafka that is a length of zeros: the file system gives them room when they are written.
        """
        segment = cls.planned(fs, directory, base_offset, created_ms=created_ms, suffix=suffix)
        segment.make(preallocated_bytes)
        return segment

    @classmethod
    def planned(
        cls, fs: FileSystem, directory: str, base_offset: int, *, created_ms: int, suffix: str = ""
    ) -> "Segment":
        """A new, empty segment whose files `make` makes."""
        segment = cls(fs, directory, base_offset, created_ms=created_ms, suffix=suffix)
        segment.is_made = False
        return segment

    def make(self, preallocated_bytes: int = 0) -> None:
        """Makes the files of a planned segment. Raises OSError, having removed what it made."""
        try:
            for path in (self.path, self.offset_index.path, self.time_index.path):
                self._fs.write_bytes(path, b"", sync=False)
            self.is_made = True
            if preallocated_bytes:
                self.file.truncate(preallocated_bytes)
                self._preallocated = True
        except OSError:
            self.is_made = False
            self.discard()  # a full disk may refuse a file and leave its name
            raise

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    @property
    def path(self) -> str:
        return self._path(names.LOG)

    def _path(self, kind: str) -> str:
        return names.segment_file(self._directory, self.base_offset, kind + self._suffix)

    @property
    def file(self) -> File:
        """The open file; opened again after `release`."""
        file = self._file
        if file is None:  # `release` may come by between two lines
            if not self.is_made and self._suffix != names.DELETED:
                self.make()
            file = self._file = self._fs.open(self.path)
        return file

    # --- append ------------------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        *,
        first_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        offset_of_max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Writes whole batches at the end. Raises OSError with nothing changed."""
        position = self.size
        if self.needs_cut:
            self.cut()
        file = self._file or self.file
        try:
            file.write(position, data)
        except OSError:
            self.needs_cut = True
            raise
        length = len(data)
        self.size = position + length
        self._checked.add(position, position + length)
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > (self._max_timestamp or self.max_timestamp()).timestamp_ms:
            self._max_timestamp = TimestampOffset(max_timestamp_ms, offset_of_max_timestamp)
        if self._bytes_since_entry > index_interval_bytes:
            self._index(last_offset, position)
        self._bytes_since_entry += length
        self.remember(first_offset, position)

    def cut(self) -> None:
        """Cuts off what a failed append has left. Raises OSError; then it is still to be done."""
        self.needs_cut = True
        self.file.truncate(self.size)
        self.needs_cut = self._preallocated = False

    def _index(self, last_offset: int, position: int) -> None:
        self._bytes_since_entry = 0
        try:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*self.max_timestamp())
        except OSError:
            return  # both keep the entries in memory and write them with the next block, or at `seal`

    def remember(self, offset: int, position: int) -> None:
        """Notes where the batch with this base offset begins, so that a later read there needs no search."""
        positions = self._positions
        positions[offset] = position
        if len(positions) >= _REMEMBERED_POSITIONS:
            self._older_positions = positions
            self._positions = {}

    def close(self) -> None:
        """Drops what only a growing segment needs: descriptors, and the positions that `remember` has noted (0.2 MB).

        A log may have ten thousand closed segments.
        """
        self._positions = {}
        self._older_positions = {}
        self.release()

    def should_roll(
        self,
        *,
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
        segment_index_bytes: int,
    ) -> bool:
        """Whether `size_bytes` more, up to `last_offset`, belong into a new segment. Raises OSError.

        As Kafka decides: by size; by age, which is the distance of the records' timestamps from the first batch's
        or, without timestamps, the time since creation; when an index is full; when an offset no longer fits.
        """
        if self.size > segment_bytes - size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        first = self._first_timestamp_ms
        if first is None:
            first = self.first_timestamp_ms()
        age = max_timestamp_ms - first if first >= 0 else now_ms - self.created_ms
        return (
            age > segment_ms
            or len(self.offset_index) >= segment_index_bytes // 8
            or len(self.time_index) >= segment_index_bytes // 12 - 1
        )

    def finish(self) -> None:
        """Writes out the indexes of a segment that will not grow further, now or before a restart. Raises OSError."""
        if self._preallocated:
            self.cut()
        if self.size and self._max_timestamp is not None:
            self.time_index.append(*self._max_timestamp)
        self.offset_index.store()
        self.time_index.store()
        self.transaction_index.store()

    # --- timestamps --------------------------------------------------------------------------------------------

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch. Raises OSError."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last()
        return self._max_timestamp

    def note_max_timestamp(self, found: TimestampOffset) -> None:
        """Sets what a scan of the batches has found."""
        self._max_timestamp = found

    def first_timestamp_ms(self) -> int:
        """The first batch's largest timestamp; -1 if the segment is empty or has none. Raises OSError."""
        if self._first_timestamp_ms is None:
            if self.size < HEADER_SIZE:
                return NO_TIMESTAMP
            self._first_timestamp_ms = self.header_at(0, blocking=True).max_timestamp
        return self._first_timestamp_ms

    def largest_timestamp_ms(self) -> int:
        """As `max_timestamp`, or when the file was last written if no record has a timestamp (Kafka's rule for
        retention). Raises OSError."""
        found = self.max_timestamp().timestamp_ms
        return found if found >= 0 else self._fs.modified_ms(self.path)

    # --- read --------------------------------------------------------------------------------------------------

    def header_at(self, position: int, *, blocking: bool) -> BatchHeader:
        """The header of the batch at `position`. Raises CorruptMessage, WouldBlock, OSError."""
        data = self._bytes(position, HEADER_SIZE, blocking=blocking)
        if len(data) < HEADER_SIZE:
            raise self._cut_short(position, blocking)
        header = BatchHeader(position, *HEADER.unpack_from(data))
        self._check_step(position, header.magic, header.batch_length)
        return header

    def position_of(self, offset: int, *, blocking: bool) -> int:
        """Where the first batch that ends at or after `offset` begins; the segment's size if there is none.

        Raises CorruptMessage, WouldBlock, OSError.
        """
        known = self._positions.get(offset)
        if known is None:
            known = self._older_positions.get(offset)
        if known is not None:
            return known
        span = self.locate(offset, blocking=blocking)
        if span is None:
            return self.size
        return span.position

    def locate(self, offset: int, *, blocking: bool) -> Span | None:
        """The first batch that ends at or after `offset`. Raises CorruptMessage, WouldBlock, OSError."""
        indexed, position = self.offset_index.floor(offset, blocking=blocking)
        return self._locate_from(offset, indexed, position, blocking=blocking)

    def _locate_from(self, offset: int, indexed: int, position: int, *, blocking: bool) -> Span | None:
        """As `locate`, from an index entry; from the segment's start if `position` is 0."""
        size = self.size
        has_indexed = position == 0
        before: Span | None = None
        expected = self.base_offset
        no_gap = indexed if position else expected  # the batch at an index entry begins at or before its offset
        while position < size:
            chunk = self._bytes(position, min(_SCAN_BYTES, size - position), blocking=blocking)
            start, at, available = position, 0, len(chunk)
            while at + WALK.size <= available:
                base, length, _, magic, _, _, delta = WALK.unpack_from(chunk, at)
                self._check_step(position, magic, length)
                if position + length + LENGTH_OVERHEAD > size:
                    raise self.corrupt(position, f"it claims {length} bytes, the file ends before")
                if delta < 0 or base < expected:
                    raise self.corrupt(position, f"it claims the offsets {base} to {base + delta} after {expected - 1}")
                if not has_indexed and base + delta >= indexed:
                    if base > indexed:
                        return self._locate_from_start(offset, blocking)
                    has_indexed = True
                span = Span(position, length + LENGTH_OVERHEAD)
                if base + delta >= offset:
                    if base > no_gap or (position and not before and base + delta > indexed):
                        self._check_gap(before, span, base + delta + 1, blocking=blocking)
                    return span
                before = span
                expected = no_gap = base + delta + 1
                at += length + LENGTH_OVERHEAD
                position = start + at
            if position == start:
                raise self._cut_short(position, blocking)
        return None if has_indexed else self._locate_from_start(offset, blocking)

    def _locate_from_start(self, offset: int, blocking: bool) -> Span | None:
        """As `locate`, since no batch has the indexed offset: a flipped bit in the index, or in a base offset, which
        lies outside the CRC. From the segment's start on, a base offset that goes back is noticed."""
        if not blocking:
            raise WouldBlock
        return self._locate_from(offset, self.base_offset, 0, blocking=True)

    def _check_gap(self, before: Span | None, after: Span, next_offset: int, *, blocking: bool) -> None:
        """Offsets are missing before the batch `after`. Compaction leaves such gaps; so does a flipped bit in one of
        the two headers beside them. Raises CorruptMessage."""
        if before is not None and not self._checked.covers(before.position, before.position + before.size_bytes):
            self._intact_prefix(self._bytes(before.position, before.size_bytes, blocking=blocking), before.position)
        following = after.position + after.size_bytes
        if following < self.size:
            base = self.header_at(following, blocking=blocking).base_offset
            if base < next_offset:
                raise self.corrupt(after.position, f"it claims offsets before {next_offset}, the next begins at {base}")

    @staticmethod
    def is_long(position: int, max_bytes: int, end: int) -> bool:
        """Whether `read` stops short of what may be read, unless it may wait for the disk."""
        return min(max_bytes, end - position) > _STEP_BYTES

    def read(self, position: int, max_bytes: int, end: int, *, min_one_message: bool, blocking: bool) -> Buffer:
        """Whole, intact batches from `position`, where one begins, in at most `max_bytes` and up to `end`, where one
        ends.

        Empty if the first batch is larger than `max_bytes` and
        `min_one_message` is not asked for. Raises CorruptMessage, WouldBlock, OSError.
        """
        wanted = min(max_bytes, end - position)
        if not blocking and wanted > _STEP_BYTES:
            wanted = _STEP_BYTES  # limits allocation for bytes not in memory, and checks on the loop
        if wanted < HEADER_SIZE:
            if not min_one_message or end - position < HEADER_SIZE:
                return b""
            wanted = self.header_at(position, blocking=blocking).size_bytes
        data = self._bytes(position, wanted, blocking=blocking)
        got = len(data)
        if position + got != end:
            whole = self._whole_batches(data, position, got, blocking=blocking)
            if not whole:
                length = self.header_at(position, blocking=blocking).size_bytes
                if length <= got or position + length > end:
                    raise self.corrupt(position, f"a batch of {length} bytes does not fit the file")
                if length > max_bytes and not min_one_message:
                    return b""
                data = self._bytes(position, length, blocking=blocking)
                whole = length
                if len(data) < length:
                    if not blocking:
                        raise WouldBlock
                    raise self.corrupt(position, f"the file ends within a batch of {length} bytes")
            if whole < len(data):
                data = memoryview(data)[:whole]
        length = len(data)
        if not self._checked.covers(position, position + length):
            if not blocking and length > _STEP_BYTES:
                raise WouldBlock
            data = self._intact_prefix(data, position)
        return data

    def check(
        self, position: int, max_bytes: int, end: int, *, min_one_message: bool
    ) -> tuple[Buffer | FileRegion, Buffer]:
        """What `read` gives when it may wait for the disk, in steps of a megabyte or a batch, of which none is kept if
        the whole is to be sent from the file; and the last step, in which the last batch is.

        Corruption behind the first step only ends it. Raises CorruptMessage, OSError.
        """
        file = self.file  # held until the end: `release` may let go of it meanwhile, and its number go to another file
        descriptor = file.descriptor()
        steps: list[Buffer] = []
        last: Buffer = b""
        at, limit = position, min(position + max_bytes, end)
        while at < limit or not last:
            step = min(_STEP_BYTES, limit - at)
            try:
                if step >= HEADER_SIZE:
                    step = min(max(step, self.header_at(at, blocking=True).size_bytes), limit - at)
                data = self.read(at, step, end, min_one_message=min_one_message and not last, blocking=True)
            except CorruptMessage:
                if not last:
                    raise
                break
            if not len(data) or (last and not follows(data, last)):
                break
            last = data
            at += len(data)
            if descriptor is None or at - position < MIN_REGION_BYTES:
                steps.append(data)
        if descriptor is None or at - position < MIN_REGION_BYTES:
            return (steps[0] if len(steps) == 1 else b"".join(steps)), last
        return FileRegion(file, descriptor, position, at - position), last

    def region(self, position: int, max_bytes: int, end: int, min_bytes: int = MIN_REGION_BYTES) -> FileRegion | None:
        """What `read` would give, left in the file to be sent from there; None if that is not possible or not worth
        it, being less than `min_bytes`.

        Raises CorruptMessage, WouldBlock, OSError.
        """
        size = min(max_bytes, end - position)
        if size < min_bytes:
            return None
        file = self._file or self.file
        descriptor = file.descriptor()
        if descriptor is None:
            return None
        if position + size != end:
            limit = position + size
            boundary = self.offset_index.floor_position(limit, blocking=False)
            if boundary < position:
                return None
            while boundary + HEADER_SIZE <= limit:
                following = boundary + self.header_at(boundary, blocking=False).size_bytes
                if following > limit:
                    break
                boundary = following
            size = boundary - position
            if size < min_bytes:
                return None
        if not self._checked.covers(position, position + size) or not file.is_in_memory(position, size):
            return None
        return FileRegion(file, descriptor, position, size)

    def prefetch(self, position: int) -> None:
        """Reads ahead: a reader that waited for the disk up to here will soon want the next bytes. In any thread."""
        size = min(_PREFETCH_BYTES, self.size - position)
        if size > 0:
            self.file.prefetch(position, size)

    def _bytes(self, position: int, size: int, *, blocking: bool) -> Buffer:
        file = self._file or self.file
        if blocking:
            return file.read(position, size)
        data = file.read_now(position, size)
        if data is None:  # what comes from the disk is checked again, and looked for again
            self._checked.clear()
            self._positions = {}
            self._older_positions = {}
            raise WouldBlock
        return data

    def _whole_batches(self, data: Buffer, position: int, size: int, *, blocking: bool) -> int:
        """How many of the first `size` bytes of `data`, read at `position`, are whole batches."""
        at = 0
        if size > _SCAN_BYTES:
            at = max(0, self.offset_index.floor_position(position + size, blocking=blocking) - position)
        while at + WALK.size <= size:
            _, length, _, magic, _, _, _ = WALK.unpack_from(data, at)
            self._check_step(position + at, magic, length)
            following = at + length + LENGTH_OVERHEAD
            if following > size:
                break
            at = following
        return at

    def _intact_prefix(self, data: Buffer, position: int) -> Buffer:
        """`data`, cut before its first corrupt batch. Raises CorruptMessage if that is the first one."""
        intact, problem = intact_prefix(data)
        if intact:
            self._checked.add(position, position + intact)
        if intact == len(data):
            return data
        if not intact:
            raise self.corrupt(position, problem)
        return memoryview(data)[:intact]

    def _check_step(self, position: int, magic: int, length: int) -> None:
        if magic != MAGIC_V2 or length < HEADER_SIZE - LENGTH_OVERHEAD:
            if magic in (0, 1):
                raise self.corrupt(position, f"it has message format {magic}, which is no longer read")
            raise self.corrupt(position, f"it claims magic {magic} and {length} bytes")

    def _cut_short(self, position: int, blocking: bool) -> Exception:
        return self.corrupt(position, "the file ends within a batch header") if blocking else WouldBlock()

    def corrupt(self, position: int, problem: str) -> CorruptMessage:
        """The error to raise for a batch of this segment."""
        return CorruptMessage(f"corrupt batch in {self.path} at position {position}: {problem}")

    # --- change ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drops the batches that end at or after `offset`, and what the indexes have of them. Raises OSError."""
        position = self.position_of(offset, blocking=True)
        self.offset_index.truncate_before(offset)
        self.time_index.truncate_before(offset)
        self.transaction_index.truncate_before(offset)
        self.truncate_to_position(position)

    def truncate_to_position(self, position: int) -> None:
        """Cuts the `.log` only. Raises OSError."""
        self.size = position
        self.cut()
        self._checked.clear()
        self._positions = {}
        self._older_positions = {}
        self._bytes_since_entry = 0
        self._max_timestamp = self.time_index.last() if not position else None
        if not position:
            self._first_timestamp_ms = None

    def trim_time_index(self, last_offset: int) -> None:
        """Keeps the time index's entries up to `last_offset`, as far as they ascend. Raises OSError."""
        kept = 0
        previous = TimestampOffset(NO_TIMESTAMP, self.base_offset - 1)
        for entry in self.time_index.entries():
            if entry.offset > last_offset or entry.offset < previous.offset or entry[0] <= previous[0]:
                break
            previous = entry
            kept += 1
        self.time_index.truncate_to_entries(kept)
        self._max_timestamp = None

    def forget_checks(self) -> None:
        """Have every batch checked again before it is served."""
        self._checked.clear()

    def mark_checked(self, start: int, end: int) -> None:
        """Notes that the batches in this range of the file are intact."""
        if end > start:
            self._checked.add(start, end)

    def is_checked(self, start: int, end: int) -> bool:
        """Whether the batches in this range of the file are known to be intact."""
        return self._checked.covers(start, end)

    @property
    def suffix(self) -> str:
        """What its files are called besides their names while compaction has not finished with them."""
        return self._suffix

    def change_suffix(self, suffix: str) -> None:
        """Renames all files; those that bear the new name already are passed over, so that it can be repeated after
        an error. Raises OSError."""
        for index, kind, is_there in (
            (self.offset_index, names.OFFSET_INDEX, True),
            (self.time_index, names.TIME_INDEX, True),
            (self.transaction_index, names.TRANSACTION_INDEX, self.transaction_index.has_file),
        ):
            path = names.segment_file(self._directory, self.base_offset, kind + suffix)
            if index.path != path and is_there:
                self._fs.rename(index.path, path)
            index.path = path
        self._fs.rename(self.path, names.segment_file(self._directory, self.base_offset, names.LOG + suffix))
        self._suffix = suffix

    def sync(self) -> None:
        """Brings all its files to the disk; for one that is complete. Raises OSError."""
        self.file.sync()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def release(self) -> None:
        """Lets go of descriptors; a reader that still has one keeps it until it is done."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()

    def retire(self) -> None:
        """Its files have been renamed, to be removed (`.deleted`). A thread that still reads finds them there, and not
        those that compaction has put in their place."""
        self._suffix = names.DELETED
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.path += names.DELETED
        self.release()

    def discard(self) -> None:
        """Removes the files of a segment that is not wanted after all; what is left goes at the next start."""
        for path in self.file_paths():
            try:
                self._fs.remove(path)
            except OSError as problem:
                logger.debug("%s was not removed: %s", path, problem)
        self.release()

    def file_paths(self) -> list[str]:
        """Its files, as far as they exist."""
        paths = [self.path, self.offset_index.path, self.time_index.path]
        if self.transaction_index.has_file:
            paths.append(self.transaction_index.path)
        return paths
