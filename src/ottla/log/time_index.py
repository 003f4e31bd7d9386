"""The sparse time index of a segment: `.timeindex`.

Entries of 12 bytes, big-endian: the largest timestamp so far int64 (ms), ``offset - base_offset`` int32 of the last
record of the batch that has it. Timestamps ascend strictly. A closed segment's last entry is its largest timestamp.
Written in blocks like the offset index, and for the same reasons.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.log import names
from ottla.log.fs import File, FileSystem
from ottla.records.batch import NO_TIMESTAMP

ENTRY: Final = Struct(">qi")
ENTRY_BYTES: Final = ENTRY.size
_BLOCK_BYTES: Final = 340 * ENTRY_BYTES


class TimestampOffset(NamedTuple):
    """A timestamp (ms, -1: none) and an offset that it belongs to."""

    timestamp_ms: int
    offset: int


class TimeIndex:
    """Not locked; see `OffsetIndex`."""

    __slots__ = ("_file", "_fs", "_last", "_stored", "_tail", "base_offset", "path")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, file_bytes: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._stored = file_bytes // ENTRY_BYTES
        self._tail = bytearray()
        self._file: File | None = None
        self._last: TimestampOffset | None = None if self._stored else self._none()

    def __len__(self) -> int:
        return self._stored + len(self._tail) // ENTRY_BYTES

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry unless its timestamp is no later than the last one's.

        Raises OSError when a full block cannot be written; the entry is kept all the same.
        """
        if timestamp_ms <= self.last().timestamp_ms:
            return
        self._tail += ENTRY.pack(timestamp_ms, offset - self.base_offset)
        self._last = TimestampOffset(timestamp_ms, offset)
        if len(self._tail) >= _BLOCK_BYTES:
            self.store()

    def store(self) -> None:
        """Writes to the file what is in memory only."""
        if self._tail:
            self._opened().write(self._stored * ENTRY_BYTES, self._tail)
            self._stored += len(self._tail) // ENTRY_BYTES
            self._tail = bytearray()

    def last(self) -> TimestampOffset:
        """The last entry; (-1, base_offset) if the index is empty. Raises OSError."""
        if self._last is None:
            self._last = self.entry(len(self) - 1)
        return self._last

    def entry(self, number: int) -> TimestampOffset:
        """The entry with this number, from 0. Raises OSError, IndexError."""
        tail, stored = self._tail, self._stored
        if number >= stored:
            start = (number - stored) * ENTRY_BYTES
            data: bytes | bytearray | memoryview = tail[start : start + ENTRY_BYTES]
        else:
            data = self._opened().read(number * ENTRY_BYTES, ENTRY_BYTES)
        if len(data) < ENTRY_BYTES:
            raise IndexError(f"{self.path} has no entry {number}")
        timestamp_ms, relative = ENTRY.unpack(data)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)

    def floor(self, timestamp_ms: int) -> TimestampOffset:
        """The last entry at or before `timestamp_ms`; (-1, base_offset) if there is none. Raises OSError."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).timestamp_ms <= timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else self._none()

    def entries(self) -> Iterator[TimestampOffset]:
        """All entries, read block by block; for inspection and recovery. Raises OSError."""
        base = self.base_offset
        end = self._stored * ENTRY_BYTES
        for start in range(0, end, _BLOCK_BYTES):
            data = bytes(self._opened().read(start, min(_BLOCK_BYTES, end - start)))
            for timestamp_ms, relative in ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]):
                yield TimestampOffset(timestamp_ms, base + relative)
        for timestamp_ms, relative in ENTRY.iter_unpack(bytes(self._tail)):
            yield TimestampOffset(timestamp_ms, base + relative)

    def truncate_to_entries(self, count: int) -> None:
        """Keeps the first `count` entries. Raises OSError."""
        if count >= self._stored:
            del self._tail[(count - self._stored) * ENTRY_BYTES :]
        else:
            self._opened().truncate(count * ENTRY_BYTES)
            self._tail = bytearray()
            self._stored = count
        self._last = None if len(self) else self._none()

    def truncate_before(self, offset: int) -> None:
        """Drops the entries at and after `offset`. Raises OSError."""
        count = len(self)
        while count and self.entry(count - 1).offset >= offset:
            count -= 1
        if count < len(self):
            self.truncate_to_entries(count)

    def sync(self) -> None:
        self._opened().sync()

    def release(self) -> None:
        """Lets go of the descriptor; it comes back when it is needed."""
        self._file = None

    def _none(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _opened(self) -> File:
        file = self._file
        if file is None:  # `release` may come by between two lines
            file = self._file = self._fs.open(self.path, create=not self.path.endswith(names.DELETED))
        return file
