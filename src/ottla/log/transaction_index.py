"""The aborted transactions of a segment: `.txnindex`, there only if there are any.

Entries of 34 bytes, big-endian: version int16 (0), producer_id int64, first_offset int64, last_offset int64 (the
marker's), last_stable_offset int64 (when the marker was written). In order of last_offset.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.log.fs import FileSystem

_ENTRY: Final = Struct(">hqqqq")

_last_offset: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """What readers of committed records must leave out: `producer_id`'s records from `first_offset` to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Few and small: kept in memory once read."""

    __slots__ = ("_entries", "_fs", "_stored", "path")

    def __init__(self, fs: FileSystem, path: str, file_bytes: int) -> None:
        self._fs = fs
        self.path = path
        self._stored = file_bytes // _ENTRY.size
        self._entries: list[AbortedTransaction] | None = None if self._stored else []

    def append(self, transaction: AbortedTransaction) -> None:
        """Writes it at once. Raises OSError; the entry counts all the same and is written with the next one."""
        entries = self.entries()
        entries.append(transaction)
        self.store()

    def store(self) -> None:
        """Writes to the file what is in memory only. Raises OSError."""
        entries = self.entries()
        fresh = b"".join(_ENTRY.pack(0, *entry) for entry in entries[self._stored :])
        if fresh:
            self._fs.open(self.path, create=True).write(self._stored * _ENTRY.size, fresh)
            self._stored = len(entries)

    @property
    def is_empty(self) -> bool:
        return not self._stored and not self._entries

    def entries(self) -> list[AbortedTransaction]:
        """All of them. Raises OSError, CorruptMessage."""
        if self._entries is None:
            self._entries = list(_decode(self.path, self._fs.read_bytes(self.path)))
        return self._entries

    def overlapping(self, first_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions in [first_offset, upper_bound), and whether later segments can have further ones."""
        found: list[AbortedTransaction] = []
        entries = self.entries()
        for number in range(bisect_left(entries, first_offset, key=_last_offset), len(entries)):
            entry = entries[number]
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_before(self, offset: int) -> None:
        """Drops transactions whose marker is at or after `offset`, and everything behind an entry that was never
        written: a power failure may leave zeros before what has reached the disk. Raises OSError."""
        known = self._entries
        if known is None:
            known = list(_decode_intact(self._fs.read_bytes(self.path)))
        kept = [entry for entry in known if entry.last_offset < offset]
        self._entries = kept
        if len(kept) < self._stored:
            self._fs.open(self.path).truncate(len(kept) * _ENTRY.size)
            self._stored = len(kept)

    @property
    def has_file(self) -> bool:
        return self._stored > 0

    def sync(self) -> None:
        if self._stored:
            self._fs.open(self.path).sync()


def _decode_intact(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries before the first that cannot be one."""
    end = -1
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        entry = AbortedTransaction(*fields)
        if version or not entry.first_offset < entry.last_offset or entry.last_offset <= end:
            return
        end = entry.last_offset
        yield entry


def _decode(path: str, data: bytes) -> Iterator[AbortedTransaction]:
    usable = len(data) // _ENTRY.size * _ENTRY.size
    for version, *fields in _ENTRY.iter_unpack(data[:usable]):
        if version > 0:
            raise CorruptMessage(f"{path} has an entry of version {version}, only 0 is known")
        yield AbortedTransaction(*fields)
