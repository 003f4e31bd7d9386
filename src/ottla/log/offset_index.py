"""The sparse offset index of a segment: `.index`.

Entries of 8 bytes, big-endian: ``offset - base_offset`` int32, position in the `.log` int32; both ascend.

The file is written in blocks of 512 entries, the rest stays in memory until the segment is closed: an index is
derived data, rebuilt from the log past the recovery point, so its writes are never waited for, and a full disk
cannot hit one half-way through an append (as it would hit a mapped file: with SIGBUS). Of a file, one offset per
block is kept in memory; a lookup reads one block.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from ottla.log import names
from ottla.log.fs import File, FileSystem, WouldBlock
from ottla.records.batch import Buffer

ENTRY_BYTES: Final = 8
_BLOCK_ENTRIES: Final = 512
_SWAP: Final = sys.byteorder == "little"
_NO_BLOCK: Final = (-1, array("I"))


class OffsetIndex:
    """Not locked: one thread appends and truncates, others may look up meanwhile and see a consistent, perhaps
    slightly older index."""

    __slots__ = ("_cached", "_file", "_fs", "_sample", "_stored", "_tail", "base_offset", "path")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, file_bytes: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._stored = file_bytes // ENTRY_BYTES
        self._tail = array("I")
        """Entries after the stored ones: relative offset, position, relative offset, ..."""
        self._sample: array[int] | None = None if self._stored else array("I")
        self._file: File | None = None
        self._cached: tuple[int, array[int]] = _NO_BLOCK

    def __len__(self) -> int:
        return self._stored + len(self._tail) // 2

    def append(self, offset: int, position: int) -> None:
        """Raises OSError when a full block cannot be written; the entry is kept all the same."""
        tail = self._tail
        tail.append(offset - self.base_offset)
        tail.append(position)
        if len(tail) >= 2 * _BLOCK_ENTRIES:
            self.store()

    def store(self) -> None:
        """Writes to the file what is in memory only."""
        tail = self._tail
        if not tail:
            return
        sample = self._samples(True)
        data = _to_bytes(tail)
        self._opened().write(self._stored * ENTRY_BYTES, data)
        first = -self._stored % _BLOCK_ENTRIES
        sample.extend(tail[2 * first :: 2 * _BLOCK_ENTRIES])
        self._cached = _NO_BLOCK
        self._stored += len(tail) // 2
        self._tail = array("I")

    def floor(self, offset: int, *, blocking: bool) -> tuple[int, int]:
        """Offset and position of the last entry at or before `offset`; (base_offset, 0) if there is none.

        Raises OSError, and WouldBlock unless `blocking`.
        """
        tail = self._tail
        target = offset - self.base_offset
        if target < 0:
            return self.base_offset, 0
        if tail and tail[0] <= target:
            return self._last_at_most(tail, target, by_position=False)
        block = self._block_for(target, blocking)
        return self._last_at_most(block, target, by_position=False)

    def floor_position(self, position: int, *, blocking: bool) -> int:
        """The last indexed position at or before `position`; 0 if there is none. Raises as `floor`."""
        tail = self._tail
        if tail and tail[1] <= position:
            return self._last_at_most(tail, position, by_position=True)[1]
        low, high = 0, len(self._samples(blocking))
        while low < high:  # positions are not sampled: blocks are read, a handful at most
            middle = (low + high) // 2
            if self._read_block(middle, blocking)[1] <= position:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        return self._last_at_most(self._read_block(low - 1, blocking), position, by_position=True)[1]

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; (base_offset, 0) if the index is empty. Raises OSError."""
        tail = self._tail
        if tail:
            return self.base_offset + tail[-2], tail[-1]
        if not self._stored:
            return self.base_offset, 0
        entry = _from_bytes(self._opened().read((self._stored - 1) * ENTRY_BYTES, ENTRY_BYTES))
        return self.base_offset + entry[0], entry[1]

    def entries(self) -> Iterator[tuple[int, int]]:
        """All (offset, position) pairs, read block by block; for inspection and recovery. Raises OSError."""
        base = self.base_offset
        for first in range(0, self._stored, _BLOCK_ENTRIES):
            flat = self._entries_at(first, min(_BLOCK_ENTRIES, self._stored - first), True)
            for at in range(0, len(flat), 2):
                yield base + flat[at], flat[at + 1]
        tail = self._tail
        for at in range(0, len(tail), 2):
            yield base + tail[at], tail[at + 1]

    def truncate_to_entries(self, count: int) -> None:
        """Keeps the first `count` entries. Raises OSError."""
        if count >= self._stored:
            self._tail = self._tail[: 2 * (count - self._stored)]
            return
        self._opened().truncate(count * ENTRY_BYTES)
        self._tail = array("I")
        self._stored = count
        self._sample = None if count else array("I")
        self._cached = _NO_BLOCK

    def truncate_before(self, offset: int) -> None:
        """Drops the entries at and after `offset`. Raises OSError."""
        kept = 0
        for entry_offset, _ in self.entries():
            if entry_offset >= offset:
                break
            kept += 1
        self.truncate_to_entries(kept)

    def sync(self) -> None:
        self._opened().sync()

    def release(self) -> None:
        """Lets go of the descriptor and of what is cached; all comes back when it is needed."""
        self._file = None
        self._cached = _NO_BLOCK

    def _opened(self) -> File:
        file = self._file
        if file is None:  # `release` may come by between two lines
            file = self._file = self._fs.open(self.path, create=not self.path.endswith(names.DELETED))
        return file

    def _samples(self, blocking: bool) -> "array[int]":
        if self._sample is None:
            sample = self._entries_at(0, self._stored, blocking)[:: 2 * _BLOCK_ENTRIES]
            if self._sample is None:
                self._sample = sample
        return self._sample

    def _block_for(self, target: int, blocking: bool) -> "array[int]":
        number = bisect_right(self._samples(blocking), target) - 1
        return self._read_block(number, blocking) if number >= 0 else array("I")

    def _read_block(self, number: int, blocking: bool) -> "array[int]":
        cached_number, block = self._cached
        if number == cached_number:
            return block
        first = number * _BLOCK_ENTRIES
        block = self._entries_at(first, min(_BLOCK_ENTRIES, self._stored - first), blocking)
        self._cached = (number, block)
        return block

    def _entries_at(self, first: int, count: int, blocking: bool) -> "array[int]":
        file = self._opened()
        size = count * ENTRY_BYTES
        if blocking:
            return _from_bytes(file.read(first * ENTRY_BYTES, size))
        data = file.read_now(first * ENTRY_BYTES, size)
        if data is None or len(data) < size:
            raise WouldBlock
        return _from_bytes(data)

    def _last_at_most(self, flat: "array[int]", target: int, *, by_position: bool) -> tuple[int, int]:
        keys = flat[1::2] if by_position else flat[0::2]
        found = bisect_right(keys, target) - 1
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + flat[2 * found], flat[2 * found + 1]


def _to_bytes(entries: "array[int]") -> bytes:
    if _SWAP:
        entries = entries[:]
        entries.byteswap()
    return entries.tobytes()


def _from_bytes(data: Buffer) -> "array[int]":
    entries = array("I")
    entries.frombytes(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    if _SWAP:
        entries.byteswap()
    return entries
