"""PURE: tables read again in chunks while their changes are streamed, in the way of DBLog.

Between two marks in the stream a chunk of rows, by primary key, is read from the table. A row of it that also changes
between the marks is let go: its change is newer. The others follow at the second mark, as records of op r. What is in
the stream may not yet be visible to the reader: then the reader's snapshot names its transaction, and the rows that it
changed are let go too. For that to be known of all, a table is begun when what was open at its signal has ended.

Source: DBLog (arXiv 2010.12597); Debezium's incremental snapshots, whose signals these are.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "ottla-incremental"
"""Of the marks, which are logical messages."""

Key = tuple[Any, ...]


@dataclass(slots=True)
class Chunk:
    """Rows of a table, as values in the order of its columns, and the transactions that their reader did not see.

    number: which marks are its. end: whether these are the last rows. Unseen are transactions from `unseen_from` on,
    and those `in_progress`.
    """

    number: str
    table: str
    rows: dict[Key, Sequence[Any]]
    end: bool
    last: Key | None
    oldest: int
    unseen_from: int
    in_progress: frozenset[int]
    is_open: bool = False


@dataclass(slots=True)
class Incremental:
    """Which tables are to be read, how far the first of them is, and the chunk between its marks.

    new_id: makes the names of marks, different ones in each run. ready_from: the transaction before which none may be
    open for the table to be begun.
    """

    new_id: Callable[[], str]
    tables: list[str] = field(default_factory=list)
    after: Key | None = None
    """Key of the last row that is done in the first table."""
    until: Key | None = None
    """The table's last key when it was begun: rows beyond are new, and in the stream anyway."""
    chunk: Chunk | None = None
    ready_from: int | None = None
    _changed: dict[int, set[tuple[str, Key]]] = field(default_factory=dict)

    @classmethod
    def restored(cls, state: Mapping[str, Any] | None, new_id: Callable[[], str]) -> "Incremental":
        """As a position has it."""
        made = cls(new_id)
        if state:
            made.tables = list(state["tables"])
            made.after = tuple(state["after"]) if state.get("after") else None
            made.until = tuple(state["until"]) if state.get("until") else None
        return made

    def state(self) -> dict[str, Any]:
        """For a position; empty when there is nothing to do."""
        if not self.tables:
            return {}
        state: dict[str, Any] = {"tables": list(self.tables)}
        if self.after is not None:
            state["after"] = list(self.after)
        if self.until is not None:
            state["until"] = list(self.until)
        return state

    def signal(self, kind: str, data: str | None, known: Sequence[str]) -> str | None:
        """A row of the signal table. Returns what is wrong with it, in a sentence."""
        if kind not in ("execute-snapshot", "stop-snapshot"):
            return f"a signal of type {kind!r} is left out: execute-snapshot and stop-snapshot are known"
        try:
            wanted = json.loads(data or "{}").get("data-collections", [])
            patterns = [re.compile(each, re.IGNORECASE) for each in wanted]
        except (ValueError, AttributeError, TypeError, re.error) as error:
            return f'a signal has data that is not {{"data-collections": ["schema.table"]}}: {error}'
        if kind == "stop-snapshot":
            if not wanted or (self.tables and any(each.fullmatch(self.tables[0]) for each in patterns)):
                self._next_table()
            self.tables = [each for each in self.tables if wanted and not any(p.fullmatch(each) for p in patterns)]
            return None
        found = [each for each in known if any(pattern.fullmatch(each) for pattern in patterns)]
        self.tables += [each for each in found if each not in self.tables]
        return None if found else f"a signal asks for {', '.join(wanted)}, and no captured table is called so"

    def may_begin(self, oldest: int, following: int) -> bool:
        """Whether what was open at the signal has ended. `oldest` is open, `following` will be the next one."""
        if self.ready_from is None:
            self.ready_from = following
        return _follows(oldest, self.ready_from)

    def begin_chunk(self, chunk: Chunk) -> None:
        """A chunk was read, and both of its marks are in the stream or will be."""
        self.chunk = chunk
        self._changed = {xid: keys for xid, keys in self._changed.items() if _follows(xid, chunk.oldest)}

    def changed(self, xid: int | None, table: str, keys: Sequence[Key]) -> None:
        """Rows of a table changed, in a transaction."""
        if not self.tables or table != self.tables[0]:
            return
        if xid is not None:
            self._changed.setdefault(xid, set()).update((table, key) for key in keys)
        chunk = self.chunk
        if chunk is not None and chunk.is_open:
            for key in keys:
                chunk.rows.pop(key, None)

    def truncated(self, table: str) -> None:
        """All rows of a table are gone."""
        if self.chunk is not None and self.chunk.table == table:
            self.chunk.rows.clear()

    def marked(self, mark: str) -> Chunk | None:
        """A mark in the stream. Returns the chunk at its second one: rows that are left are to be handed on."""
        chunk = self.chunk
        if chunk is None:
            return None
        if mark == f"{chunk.number} low":
            chunk.is_open = True
            for xid, keys in self._changed.items():
                if _follows(xid, chunk.unseen_from) or xid in chunk.in_progress:
                    for table, key in keys:
                        if table == chunk.table:
                            chunk.rows.pop(key, None)
            return None
        if mark != f"{chunk.number} high":
            return None
        self.chunk = None
        if self.tables and self.tables[0] == chunk.table:
            self.after = chunk.last
            if chunk.end:
                self._next_table()
        return chunk

    def _next_table(self) -> None:
        del self.tables[:1]
        self.after = self.until = self.chunk = self.ready_from = None
        self._changed.clear()


def _follows(xid: int, other: int) -> bool:
    """Whether a transaction is `other` or later: their numbers begin again after 32 bits."""
    return (xid - other) & 0xFFFFFFFF < 1 << 31
