"""PURE: incremental snapshots where the stream is ahead of what readers see.

What is in the stream may not yet be visible to the reader of a chunk: then the reader's snapshot names its transaction,
and the rows that it changed are let go too. For that to be known of all, a table is begun when what was open at its
signal has ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connectors.capture.incremental import Incremental, Key

PREFIX: Final = "ottla-incremental"
"""Prefix of the watermarks, which are logical messages."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """Transactions as the reader of a chunk sees them: those from `unseen_from` on, and those `in_progress`, it does
    not.

    oldest: of those that are open.
    """

    oldest: int
    unseen_from: int
    in_progress: frozenset[int]


class PostgresIncremental(Incremental):
    """Knows by their transactions which rows changed before a chunk's first mark.

    ready_from: a transaction of after the signal, before which none may be open for the table to be begun.
    """

    def __init__(self, new_id: Callable[[], str], state: Mapping[str, Any] | None = None) -> None:
        super().__init__(new_id, state)
        self.ready_from: int | None = None
        self._changed: dict[int, set[tuple[str, Key]]] = {}
        self._sees: Visibility | None = None

    def may_begin(self, oldest: int) -> bool:
        """Whether what was open at the signal has ended. `oldest` is open, or the next one if none is."""
        return self.ready_from is not None and _follows(oldest, self.ready_from)

    def read_with(self, sees: Visibility) -> None:
        """What the reader of the next chunk saw."""
        self._sees = sees
        self._changed = {xid: keys for xid, keys in self._changed.items() if _follows(xid, sees.oldest)}

    def changed_by(self, xid: int | None, table: str, keys: Sequence[Key]) -> None:
        """Rows of a table changed, in a transaction."""
        if not self.tables or table != self.tables[0]:
            return
        if xid is not None:
            self._changed.setdefault(xid, set()).update((table, key) for key in keys)
        self.changed(table, keys)

    def opened(self, number: str) -> None:
        """A first mark: rows go that changed before it where the reader did not see it."""
        super().opened(number)
        chunk, sees = self.chunk, self._sees
        if chunk is None or not chunk.is_open or sees is None:
            return
        for xid, keys in self._changed.items():
            if _follows(xid, sees.unseen_from) or xid in sees.in_progress:
                self.changed(chunk.table, [key for table, key in keys if table == chunk.table])

    def marked(self, mark: str) -> str | None:
        """A mark in the stream. Returns the number of the chunk if it is the second one."""
        number, _, which = mark.partition(" ")
        if which == "low":
            self.opened(number)
        return number if which == "high" else None

    def next_table(self) -> None:
        """Done with the first table."""
        super().next_table()
        self.ready_from = None
        self._changed.clear()


def _follows(xid: int, other: int) -> bool:
    """Whether a transaction is `other` or later: their numbers begin again after 32 bits."""
    return (xid - other) & 0xFFFFFFFF < 1 << 31
