"""PURE: events of the binlog as records, each with the position to go on from after it.

A position is `{"file", "pos", "gtids", "events": n}`: all transactions before `pos` in `file` are done, which are those
of `gtids` where the server has them, and the first n rows of the one that begins there. The stream is started by GTIDs
where it can be, so that another server of the same data does as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.api import Position, Progress, Schema, SourceRecord
from ottla.connect.connectors.capture.envelope import VERSION, SourceBlock, TableEvents, source_schema
from ottla.connect.schema import INT32, INT64, STRING

SOURCE: Final = {
    kind: source_schema(
        kind,
        ("table", STRING.as_optional()),
        ("server_id", INT64),
        ("gtid", STRING.as_optional()),
        ("file", STRING),
        ("pos", INT64),
        ("row", INT32),
        ("thread", INT64.as_optional()),
        ("query", STRING.as_optional()),
    )
    for kind in ("mysql", "mariadb")
}

Describe = Callable[[str, str, Sequence[str], Sequence[str]], TableEvents | None]
"""Database, table, names of columns and of the key: what becomes of rows; None: they are not captured."""
AddGtid = Callable[[str, str], str]
"""A set of GTIDs and one more."""


@dataclass(slots=True)
class RowChange:
    """Rows of one event of the binlog. `rows`: before and after, None for what was not there."""

    database: str
    table: str
    names: tuple[str, ...]
    key: tuple[str, ...]
    rows: list[tuple[list[Any] | None, list[Any] | None]]
    at_s: int
    server_id: int


def source_block(kind: str, server: str, at_ms: int, file: str, pos: int) -> SourceBlock:
    """Where a change comes from, but for the table."""
    return {
        "version": VERSION,
        "connector": kind,
        "name": server,
        "ts_ms": at_ms,
        "snapshot": "false",
        "db": "",
        "sequence": None,
        "ts_us": at_ms * 1000,
        "ts_ns": at_ms * 1_000_000,
        "table": None,
        "server_id": 0,
        "gtid": None,
        "file": file,
        "pos": pos,
        "row": 0,
        "thread": None,
        "query": None,
    }


def source_of(kind: str) -> Schema:
    """Schema of the source block."""
    return SOURCE[kind]


class Changes:
    """Takes one event after the other. `kind`: mysql or mariadb; `now_ns`: the clock of `ts_ms`."""

    def __init__(
        self,
        kind: str,
        server: str,
        position: Position,
        describe: Describe,
        add_gtid: AddGtid,
        now_ns: Callable[[], int],
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        self._kind = kind
        self._server = server
        self._describe = describe
        self._add_gtid = add_gtid
        self._now_ns = now_ns
        self._skipped = skipped
        self._tables: dict[tuple[str, str, tuple[str, ...]], TableEvents | None] = {}
        self._file: str = position["file"]
        self._pos: int = position["pos"]
        self._gtids: str = position.get("gtids") or ""
        self._to_skip: int = position.get("events", 0)
        self._gtid: str | None = None
        self._events = 0
        self.in_transaction = False
        """Amid a transaction, of which more follows."""

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        position: dict[str, Any] = {"file": self._file, "pos": self._pos}
        if self._gtids:
            position["gtids"] = self._gtids
        if self._events:
            position["events"] = self._events
        return position

    def rotated(self, file: str, pos: int) -> None:
        """The stream goes on in another file."""
        if not self.in_transaction:
            self._file, self._pos = file, pos

    def began(self, gtid: str | None) -> None:
        """A transaction begins."""
        self.in_transaction, self._events = True, 0
        self._gtid = gtid or self._gtid

    def table_changed(self) -> None:
        """A statement may have changed tables: look at them again."""
        self._tables.clear()

    def committed(self, pos: int, batch: list[SourceRecord | Progress]) -> None:
        """The transaction ends; `pos` is what follows it."""
        before = self.position()
        had_rows = bool(batch) and self._events > 0 and batch[-1].position == before
        if self._gtid is not None:
            self._gtids = self._add_gtid(self._gtids, self._gtid)
        self.in_transaction, self._events, self._gtid, self._to_skip = False, 0, None, 0
        self._pos = pos
        if had_rows or (batch and isinstance(batch[-1], Progress)):  # not handed on yet: it says that all of it is done
            batch[-1].position = self.position()
        else:
            batch.append(Progress(position=self.position()))

    def change(self, change: RowChange, pos: int, batch: list[SourceRecord | Progress]) -> None:
        """Rows changed. Raises ConnectError for a value that no schema can hold."""
        which = (change.database, change.table, change.names)
        if which not in self._tables:
            self._tables[which] = self._describe(change.database, change.table, change.names, change.key)
        table = self._tables[which]
        block = source_block(self._kind, self._server, change.at_s * 1000, self._file, pos)
        block |= {"db": change.database, "table": change.table, "server_id": change.server_id, "gtid": self._gtid}
        for number, (before, after) in enumerate(change.rows):
            self._events += 1
            if table is None or self._events <= self._to_skip:
                continue
            records = self._row(table, before, after, block | {"row": number})
            if records:
                records[-1].position = self.position()
                batch.extend(records)

    def _row(
        self, table: TableEvents, before: list[Any] | None, after: list[Any] | None, block: SourceBlock
    ) -> list[SourceRecord]:
        if before is None and after is not None:
            return [table.created(after, block, self._now_ns())] if "c" not in self._skipped else []
        if before is not None and after is not None:
            return table.updated(before, True, after, block, self._now_ns()) if "u" not in self._skipped else []
        if before is not None:
            return table.deleted(before, block, self._now_ns()) if "d" not in self._skipped else []
        return []
