"""PURE: messages of the replication stream as records, each with the position to go on from after it.

A position is `{"lsn": where to start the stream, "transaction": final LSN, "events": n}`: all transactions before `lsn`
are done, and the first n changes of the one that ends at `transaction`. The server sends a transaction whole and always
in the same order, so a count is exact, which the LSN of a change is not (the rows of one COPY share one).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.api import Position, Progress, SourceRecord
from ottla.connect.connectors.capture.envelope import VERSION, SourceBlock, TableEvents, source_schema
from ottla.connect.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    Truncate,
    Update,
)
from ottla.connect.schema import INT64, STRING

CONNECTOR: Final = "postgresql"
SOURCE: Final = source_schema(
    CONNECTOR,
    ("schema", STRING),
    ("table", STRING),
    ("txId", INT64.as_optional()),
    ("lsn", INT64.as_optional()),
    ("xmin", INT64.as_optional()),
)

RowChange = Insert | Update | Delete
OnChange = Callable[[Relation, TableEvents, RowChange | Truncate, int | None], bool]
"""Told of each change of a row, or of all, with its transaction; True: no record is to be made of it."""
Describe = Callable[[Relation], TableEvents | None]
"""What becomes of the changes of a table as it is now; None: they are not captured."""


def source_block(server: str, database: str, at_us: int, xid: int | None, lsn: int | None) -> SourceBlock:
    """Where a change comes from, but for the table; `at_us`: when it was committed."""
    return {
        "version": VERSION,
        "connector": CONNECTOR,
        "name": server,
        "ts_ms": at_us // 1000,
        "snapshot": "false",
        "db": database,
        "sequence": None,
        "ts_us": at_us,
        "ts_ns": at_us * 1000,
        "schema": "",
        "table": "",
        "txId": xid,
        "lsn": lsn,
        "xmin": None,
    }


class Changes:
    """Takes one message after the other. `lsn`: where the stream was started; `now_ns`: the clock of `ts_ms`."""

    def __init__(
        self,
        server: str,
        database: str,
        position: Position,
        describe: Describe,
        now_ns: Callable[[], int],
        skipped: frozenset[str] = frozenset(),
        on_change: OnChange | None = None,
        on_message: Callable[[LogicalMessage], list[SourceRecord]] | None = None,
        more_position: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._server = server
        self._database = database
        self._describe = describe
        self._now_ns = now_ns
        self._skipped = skipped
        self._on_change = on_change
        self._on_message = on_message
        self._more_position = more_position
        self._tables: dict[int, tuple[Relation, TableEvents] | None] = {}
        self.lsn: int = position["lsn"]
        """Everything before is taken: the end of the last whole transaction."""
        self._done_of: int | None = position.get("transaction")
        self._done: int = position.get("events", 0)
        self._begin: Begin | None = None
        self._events = 0
        self._to_skip = 0
        """Changes of this transaction that were done before the stream began."""
        self._block: SourceBlock = {}
        self._last_commit = "null"
        """In JSON, of the last transaction that this stream has brought."""
        self._take: Mapping[type[Message], Callable[[Any, int, list[SourceRecord | Progress]], None]] = {
            Insert: self._inserted,
            Update: self._updated,
            Delete: self._deleted,
            Begin: self._began,
            Commit: self._committed,
            Relation: self._described,
            Truncate: self._truncated,
            LogicalMessage: self._emitted,
        }

    @property
    def in_transaction(self) -> bool:
        """Amid a transaction, of which more follows."""
        return self._begin is not None

    @property
    def xid(self) -> int | None:
        """Of the transaction that is being taken."""
        return self._begin.xid if self._begin is not None else None

    def take(self, message: Message, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        """Put what a message means at the end of `batch`; `lsn` is where the stream has it.

        Raises ConnectError for a value that no schema can hold.
        """
        take = self._take.get(message.__class__)
        if take is not None:
            take(message, lsn, batch)

    def caught_up(self, lsn: int) -> Progress | None:
        """The server has nothing to send before `lsn`: the position moves there, unless a transaction is on its way."""
        if self._begin is not None or lsn <= self.lsn:
            return None
        self.lsn = lsn
        return Progress(position=self.position())

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        position: dict[str, Any] = {"lsn": self.lsn}
        if self._more_position is not None:
            position.update(self._more_position())
        if self._begin is not None and self._events:
            position["transaction"], position["events"] = self._begin.final_lsn, self._events
        return position

    def _began(self, begin: Begin, _lsn: int, _batch: list[SourceRecord | Progress]) -> None:
        self._begin, self._events = begin, 0
        self._to_skip = self._done if begin.final_lsn == self._done_of else 0
        self._block = source_block(self._server, self._database, begin.committed_at_us, begin.xid, None)

    def _described(self, relation: Relation, _lsn: int, _batch: list[SourceRecord | Progress]) -> None:
        table = self._describe(relation)
        self._tables[relation.oid] = None if table is None else (relation, table)

    def _inserted(self, change: Insert, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        found = self._table_of(change, "c")
        if found is not None:
            record = found[1].created(change.new, self._source(found[0], lsn), self._now_ns())
            record.position = self.position()
            batch.append(record)

    def _updated(self, change: Update, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        found = self._table_of(change, "u")
        if found is not None:
            block = self._source(found[0], lsn)
            self._add(found[1].updated(change.old, change.old_is_whole, change.new, block, self._now_ns()), batch)

    def _deleted(self, change: Delete, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        found = self._table_of(change, "d")
        if found is not None:
            self._add(found[1].deleted(change.old, self._source(found[0], lsn), self._now_ns()), batch)

    def _truncated(self, change: Truncate, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        if not self._counted():
            return
        records = []
        for oid in change.relations:
            found = self._tables.get(oid)
            if found is None or (self._on_change is not None and self._on_change(*found, change, self.xid)):
                continue
            if "t" not in self._skipped:
                records.append(found[1].truncated(self._source(found[0], lsn), self._now_ns()))
        self._add(records, batch)

    def _emitted(self, message: LogicalMessage, _lsn: int, batch: list[SourceRecord | Progress]) -> None:
        if not message.transactional or self._counted():
            self._add(self._on_message(message) if self._on_message is not None else [], batch)

    def _committed(self, commit: Commit, _lsn: int, batch: list[SourceRecord | Progress]) -> None:
        had_records = self._events > 0 and bool(batch) and batch[-1].position == self.position()
        self._begin, self._events = None, 0
        self.lsn = commit.end_lsn
        self._last_commit = f'"{commit.end_lsn}"'
        if had_records or (batch and isinstance(batch[-1], Progress)):  # not handed on yet: it says that all is done
            batch[-1].position = self.position()
        else:
            batch.append(Progress(position=self.position()))

    def _table_of(self, change: RowChange, op: str) -> tuple[Relation, TableEvents] | None:
        """Where a change of a row belongs, or None if no record is to be made of it."""
        if not self._counted():
            return None
        found = self._tables[change.relation]
        if found is None or (self._on_change is not None and self._on_change(*found, change, self.xid)):
            return None
        return found if op not in self._skipped else None

    def _counted(self) -> bool:
        """Count a change; False if it was done before the stream began."""
        self._events += 1
        return self._events > self._to_skip

    def _add(self, records: list[SourceRecord], batch: list[SourceRecord | Progress]) -> None:
        if records:
            records[-1].position = self.position()
            batch.extend(records)

    def _source(self, relation: Relation, lsn: int) -> SourceBlock:
        block = self._block.copy()
        block["schema"], block["table"], block["lsn"] = relation.schema, relation.table, lsn
        block["sequence"] = f'[{self._last_commit},"{lsn}"]'
        return block
