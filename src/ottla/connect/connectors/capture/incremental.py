"""PURE: tables read again in chunks while their changes are streamed, in the way of DBLog.

Between two marks in the stream a chunk of rows, by primary key, is read from the table. A row of it that also changes
between the marks is let go: its change is newer. The others follow at the second mark, as records of op r.

Source: DBLog (arXiv 2010.12597); Debezium's incremental snapshots, whose signals these are.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.patterns import compiled

Key = tuple[Any, ...]
_INCREMENTAL: Final = "incremental"
_CONDITIONS: Final = ("additional-conditions", "additional-condition")


@dataclass(slots=True)
class Chunk:
    """Rows of a table, as values in the order of its columns.

    number: identifies its watermarks. rows: by their key in the stream. end: whether these are the last ones.
    last: key of the last row, in the form of offsets.
    """

    number: str
    table: str
    rows: dict[Key, Sequence[Any]]
    end: bool
    last: Key | None
    is_open: bool = False


class Incremental:
    """Which tables are to be read, how far the first of them is, and the chunk between its marks.

    new_id: makes the names of marks, different ones in each run.
    """

    def __init__(self, new_id: Callable[[], str], state: Mapping[str, Any] | None = None) -> None:
        """`state`: as stored in an offset."""
        state = state or {}
        self.new_id = new_id
        self.tables: list[str] = list(state.get("tables", ()))
        self.key: tuple[str, ...] = tuple(state.get("key", ()))
        """Columns by which the first table is read."""
        self.after: Key | None = tuple(state["after"]) if state.get("after") else None
        """Key of the last row that is done in the first table."""
        self.until: Key | None = tuple(state["until"]) if state.get("until") else None
        """The table's last key when it was begun: rows beyond are new, and in the stream anyway."""
        self.chunk: Chunk | None = None

    def state(self) -> dict[str, Any]:
        """For a position, as JSON; empty when there is nothing to do."""
        if not self.tables:
            return {}
        state: dict[str, Any] = {"tables": list(self.tables)}
        for name, key in (("key", self.key), ("after", self.after), ("until", self.until)):
            if key:
                state[name] = list(key)
        return state

    def signal(self, kind: str, data: str | None, known: Sequence[str]) -> str | None:
        """A row of the signal table. Returns what is wrong with it, in a sentence."""
        if kind not in ("execute-snapshot", "stop-snapshot"):
            return f"a signal of type {kind!r} is left out: execute-snapshot and stop-snapshot are known"
        try:
            asked = json.loads(data or "{}")
            wanted, how = asked.get("data-collections", []), str(asked.get("type") or _INCREMENTAL)
            patterns = [compiled(each, any_case=True) for each in wanted]
        except (ValueError, AttributeError, TypeError, re.error) as error:
            return f'a signal has data that is not {{"data-collections": ["schema.table"]}}: {error}'
        if how.lower() != _INCREMENTAL:
            return f"a signal for a snapshot of type {how!r} is left out: {_INCREMENTAL} is known"
        if kind == "stop-snapshot":
            if not wanted or (self.tables and any(each.fullmatch(self.tables[0]) for each in patterns)):
                self.next_table()
            self.tables = [each for each in self.tables if wanted and not any(p.fullmatch(each) for p in patterns)]
            return None
        conditions = next((name for name in _CONDITIONS if asked.get(name)), None)
        if conditions is not None:
            return f"a signal with {conditions} is left out, and nothing is read: tables are read whole"
        found = [each for each in known if any(pattern.fullmatch(each) for pattern in patterns)]
        self.tables += [each for each in found if each not in self.tables]
        return None if found else f"a signal asks for {', '.join(wanted)}, and no captured table is called so"

    def read_by(self, key: Sequence[str]) -> None:
        """The first table is read by these columns: from its start, if it was read by others before."""
        if self.key != tuple(key):
            if self.key:
                self.after = self.until = None
            self.key = tuple(key)

    def begin_chunk(self, chunk: Chunk) -> None:
        """A chunk was read, and both of its marks are in the stream or will be."""
        self.chunk = chunk

    def changed(self, table: str, keys: Sequence[Key]) -> None:
        """Rows of a table changed."""
        chunk = self.chunk
        if chunk is not None and chunk.is_open and table == chunk.table:
            for key in keys:
                chunk.rows.pop(key, None)

    def truncated(self, table: str) -> None:
        """All rows of a table are gone."""
        if self.chunk is not None and self.chunk.table == table:
            self.chunk.rows.clear()

    def read_again(self) -> None:
        """The chunk is not good any more: its marks mean nothing, and its rows are to be read anew."""
        self.chunk = None

    def opened(self, number: str) -> None:
        """A first mark in the stream."""
        if self.chunk is not None and self.chunk.number == number:
            self.chunk.is_open = True

    def closed(self, number: str) -> Chunk | None:
        """A second mark in the stream. Returns its chunk: rows that are left are to be handed on."""
        chunk = self.chunk
        if chunk is None or chunk.number != number:
            return None
        self.chunk = None
        if self.tables and self.tables[0] == chunk.table:
            self.after = chunk.last
            if chunk.end:
                self.next_table()
        return chunk

    def next_table(self) -> None:
        """Done with the first table."""
        del self.tables[:1]
        self.after = self.until = self.chunk = None
        self.key = ()
