"""PURE: events of the binlog as records, each with the position to go on from after it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.connect.api import BadRecord, Position, SourceRecord
from ottla.connect.connectors.capture import envelope
from ottla.connect.connectors.capture.changes import Batch, EventWriter, Rules
from ottla.connect.connectors.capture.envelope import SourceBlock, TableEvents, kept, source_schema
from ottla.connect.connectors.mysql.decoding.place import Origin, Place
from ottla.connect.connectors.mysql.decoding.table_map import RowPair, TableMap
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


Describe = Callable[[TableMap], TableEvents | None]
"""What becomes of the rows of a table; None: they are not captured."""


@dataclass(slots=True)
class RowChange:
    """Rows of one event of the binlog, which begins at `pos`. `rows`: before and after, None for what was not there."""

    described: TableMap
    rows: list[RowPair]
    at_s: int
    server_id: int
    pos: int

    @property
    def database(self) -> str:
        """The table's database."""
        return self.described.database

    @property
    def table(self) -> str:
        """Its name."""
        return self.described.table

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self.described.names


def source_block(kind: str, server: str, at_ms: int, file: str, pos: int) -> SourceBlock:
    """Where a change comes from, but for the table."""
    own = {"table": None, "server_id": 0, "gtid": None, "file": file, "pos": pos, "row": 0, "thread": None}
    return envelope.source_block(kind, server, at_ms * 1000, "", **own, query=None)


class Listener(Protocol):
    """Receives changes for incremental snapshots."""

    def has_signals(self, database: str, table: str) -> bool:
        """Whether this is the signal table."""

    def signalled(
        self,
        names: Sequence[str],
        before: Sequence[Any] | None,
        after: Sequence[Any] | None,
        place: tuple[str, int],
    ) -> list[SourceRecord]:
        """A row of the signal table changed, at a place in the binlog. Returns the records of a chunk if that was its
        second mark.
        """

    def changed(self, change: RowChange) -> None:
        """Rows of another table changed."""

    def restructured(self, statement: str) -> None:
        """Tables may have another form, or no rows any more."""

    def position(self) -> Mapping[str, Any]:
        """What a position has to say about it."""


class Changes:
    """Takes one event after the other.

    position: where the stream was started. warn: called for a transaction that was half done and is gone. listener: if
    there is a signal table.
    """

    def __init__(
        self,
        origin: Origin,
        position: Position,
        describe: Describe,
        rules: Rules,
        warn: Callable[[str], None],
        listener: Listener | None = None,
    ) -> None:
        self._origin = origin
        self._describe = describe
        self._rules = rules
        self._listener = listener
        self._place = Place(origin, position, warn, listener.position if listener is not None else None)
        self._writer = EventWriter(rules, self._place.transaction, self._place.position)
        self._tables: dict[TableMap, TableEvents | None] = {}
        self.in_transaction = False
        """Amid a transaction, of which more follows."""
        self._has_end = False
        """Whether an event of its own ends it, as it does for all but a statement that is a transaction by itself."""

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        return self._place.position()

    def rotated(self, file: str, pos: int) -> None:
        """The stream continues in another file, whose first event carries the time it was begun."""
        self._place.rotated(file, pos)

    def file_began(self, created: int) -> None:
        """The file in which the stream goes on was begun in this second.

        A transaction that a crash has cut off has no end: it stays undone, and its place stays until another begins.
        """
        self._place.file_began(created)
        if not self.in_transaction:
            self._place.enter()

    def numbered(self, gtid: str) -> None:
        """What comes next is a transaction, or one statement, with a GTID."""
        self.in_transaction, self._has_end = True, False
        self._place.numbered(gtid)

    def began(self, at_s: int, batch: Batch) -> None:
        """A transaction begins, whose end comes as an event; `at_s`: seconds since 1970."""
        self._place.enter()
        self.in_transaction, self._has_end = True, True
        current = self._place.transaction
        is_sent, current.events = current.begun, 0
        current.begun = is_sent or self._rules.transactions is not None
        self._writer.began(self._place.transaction_id, at_s * 1000, batch, is_sent=is_sent)

    def restructured(self, statement: str) -> None:
        """A statement may have changed tables: look at them again."""
        self._tables.clear()
        if self._listener is not None:
            self._listener.restructured(statement)

    def stated(self, pos: int, batch: Batch) -> None:
        """A statement is in the binlog as such: a transaction by itself, unless it is amid one. `pos`: what follows."""
        if not self._has_end:
            self._ended(pos, batch)

    def committed(self, pos: int, at_s: int, batch: Batch) -> None:
        """The transaction ends; `pos` is what follows it."""
        if self._has_end:
            self._writer.ended(self._place.transaction_id, at_s * 1000, batch)
        self._ended(pos, batch)

    def change(self, change: RowChange, pos: int, batch: Batch) -> None:
        """Rows changed. Raises BadRecord for a value that no schema can hold, unless `rules.reject` skips its row."""
        listener, writer, place = self._listener, self._writer, self._place
        current = place.transaction
        if listener is not None:
            if listener.has_signals(change.database, change.table):
                for before, after in change.rows:
                    current.events += 1
                    if not current.is_done:
                        writer.add(listener.signalled(change.names, before, after, (place.file, pos)), batch)
                return
            listener.changed(change)
        if change.described not in self._tables:
            self._tables[change.described] = self._describe(change.described)
        table = self._tables[change.described]
        block = source_block(self._origin.kind, self._origin.server, change.at_s * 1000, place.file, change.pos)
        block |= {"db": change.database, "table": change.table, "server_id": change.server_id, "gtid": current.gtid}
        name = f"{change.database}.{change.table}"
        for number, (before, after) in enumerate(change.rows):
            current.events += 1
            if table is None or writer.passes_over:
                continue
            try:
                records = self._row(table, before, after, block | {"row": number})
            except BadRecord as error:
                if self._rules.reject is None or not current.is_done:
                    writer.refuse(error)
                continue
            writer.add(writer.counted(records, name, lambda: place.transaction_id), batch)

    def _ended(self, pos: int, batch: Batch) -> None:
        """Everything before `pos` is done."""
        self.in_transaction = self._has_end = False
        self._writer.moved(lambda: self._place.ended(pos), batch)

    def _row(
        self, table: TableEvents, before: list[Any] | None, after: list[Any] | None, block: SourceBlock
    ) -> list[SourceRecord]:
        now_ns, skipped = self._rules.now_ns, self._rules.skipped
        if before is None and after is not None:
            return [table.created(after, block, now_ns())] if "c" not in skipped else []
        if before is not None and after is not None:
            if "u" in skipped:  # also one of the key: Debezium's connectors do not read such events
                return []
            return kept(table.updated(before, True, after, block, now_ns()), skipped)
        if before is not None:
            return table.deleted(before, block, now_ns()) if "d" not in skipped else []
        return []
