"""PURE: messages of the replication stream as records, each with the position to go on from after it.

A position is `{"lsn": where to start the stream, "transaction": final LSN, "events": n}`: all transactions before `lsn`
are done, and the first n changes of the one that ends at `transaction`. The server sends a transaction whole and always
in the same order, so a count is exact, which the LSN of a change is not (the rows of one COPY share one). `begun` means
that the begin record of that transaction has been sent, where configured; `commit` is where the last one ended.
`system`
and `timeline` identify the server's WAL of these positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.api import BadRecord, Position, Progress, SourceRecord
from ottla.connect.connectors.capture.envelope import VERSION, SourceBlock, TableEvents, kept, source_schema
from ottla.connect.connectors.capture.transactions import Transactions
from ottla.connect.connectors.postgres.decoding.pgoutput import (
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
from ottla.connect.connectors.postgres.messages import COLLECTION, Messages
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
OnChange = Callable[[Relation, RowChange | Truncate, int | None], None]
"""Called with each change of a row, or each truncate, with its transaction."""
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


@dataclass(frozen=True, slots=True)
class _Table:
    """What becomes of a table's changes. `has_records`: False for one that is only listened to."""

    relation: Relation
    events: TableEvents
    name: str
    has_records: bool


class Changes:
    """Takes one message after the other. `now_ns`: the clock of `ts_ms`.

    position: where the stream was started. listened_to: schema.table of a table of which no records are made.
    transactions: whether begin and end records are sent. xmin: of the slot, queried once in a transaction.
    messages: whether logical messages are captured. reject: called with a change that no schema can hold, to skip it or
    raise.
    """

    def __init__(
        self,
        server: str,
        database: str,
        position: Position,
        describe: Describe,
        now_ns: Callable[[], int],
        skipped: frozenset[str] = frozenset(),
        transactions: Transactions | None = None,
        xmin: Callable[[], int | None] = lambda: None,
        messages: Messages | None = None,
        listened_to: str = "",
        on_change: OnChange | None = None,
        on_message: Callable[[LogicalMessage], list[SourceRecord]] | None = None,
        more_position: Callable[[], Mapping[str, Any]] | None = None,
        reject: Callable[[BadRecord], None] | None = None,
    ) -> None:
        self._server = server
        self._database = database
        self._describe = describe
        self._now_ns = now_ns
        self._skipped = skipped
        self._transactions = transactions
        self._xmin = xmin
        self._messages = messages
        self._listened_to = listened_to
        self._on_change = on_change
        self._on_message = on_message
        self._more_position = more_position
        self._reject = reject
        self._tables: dict[int, _Table | None] = {}
        self.lsn: int = position["lsn"]
        """Everything before is taken: the end of the last whole transaction."""
        self._identity = {name: position[name] for name in ("system", "timeline") if name in position}
        self._half_done = {name: position[name] for name in ("transaction", "events", "begun") if name in position}
        """The start position's part of a transaction that has not come yet; no position may lose it until it has."""
        self._begin: Begin | None = None
        self._events = 0
        self._to_skip = 0
        """Changes of this transaction that were done before the stream began."""
        self._block: SourceBlock = {}
        self._before = "null"
        """In JSON, where the transaction before ended."""
        self._last_commit: int | None = position.get("commit")
        """Where the last reported transaction ended."""
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
        """The id of the transaction that is being processed."""
        return self._begin.xid if self._begin is not None else None

    def take(self, message: Message, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        """Append the records of a message to `batch`; `lsn` is its position in the stream.

        Raises BadRecord for a value that no schema can hold, unless `reject` skips its change.
        """
        take = self._take.get(message.__class__)
        if take is not None:
            try:
                take(message, lsn, batch)
            except BadRecord as error:
                if self._reject is None:
                    raise
                self._reject(error)

    def caught_up(self, lsn: int) -> Progress | None:
        """The server has nothing to send before `lsn`: the position moves there, unless a transaction is on its way."""
        if self._begin is not None or lsn <= self.lsn:
            return None
        self.lsn = lsn
        return Progress(position=self.position())

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        position: dict[str, Any] = {"lsn": self.lsn, **self._identity}
        if self._last_commit is not None:
            position["commit"] = self._last_commit
        if self._more_position is not None:
            position.update(self._more_position())
        if self._half_done:
            position.update(self._half_done)
        elif self._begin is not None and (self._events or self._to_skip or self._transactions is not None):
            position["transaction"], position["events"] = self._begin.final_lsn, max(self._events, self._to_skip)
            if self._transactions is not None:
                position["begun"] = True
        return position

    def _began(self, begin: Begin, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        half_done = self._half_done
        goes_on = begin.final_lsn == half_done.get("transaction")
        if begin.final_lsn >= half_done.get("transaction", 0):
            self._half_done = {}
        self._begin, self._events = begin, 0
        self._to_skip = half_done.get("events", 0) if goes_on else 0
        self._block = source_block(self._server, self._database, begin.committed_at_us, begin.xid, None)
        self._block["xmin"] = self._xmin()
        self._before = "null" if self._last_commit is None else f'"{self._last_commit}"'
        if self._transactions is not None:
            self._transactions.reset()
            if not (goes_on and half_done.get("begun", False)):
                self._add([self._transactions.began(f"{begin.xid}:{lsn}", begin.committed_at_us // 1000)], batch)

    def _described(self, relation: Relation, _lsn: int, _batch: list[SourceRecord | Progress]) -> None:
        events = self._describe(relation)
        name = f"{relation.schema}.{relation.table}"
        has_records = name != self._listened_to
        self._tables[relation.oid] = None if events is None else _Table(relation, events, name, has_records)

    def _inserted(self, change: Insert, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        table = self._table_of(change, "c")
        if table is not None:
            record = table.events.created(change.new, self._source(table, lsn), self._now_ns())
            self._add(self._marked(table.name, [record], lsn), batch)

    def _updated(self, change: Update, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        table = self._table_of(change, None)
        if table is not None:
            old, block = change.old, self._source(table, lsn)
            records = table.events.updated(old, change.old_is_whole, change.new, block, self._now_ns())
            self._add(self._marked(table.name, kept(records, self._skipped), lsn), batch)

    def _deleted(self, change: Delete, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        table = self._table_of(change, "d")
        if table is not None:
            records = table.events.deleted(
                change.old, self._source(table, lsn), self._now_ns(), old_is_whole=change.old_is_whole
            )
            self._add(self._marked(table.name, records, lsn), batch)

    def _truncated(self, change: Truncate, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        self._events += 1
        records: list[SourceRecord] = []
        for oid in change.relations:
            table = self._recorded(self._tables.get(oid), change, "t")
            if table is not None:
                truncated = table.events.truncated(self._source(table, lsn), self._now_ns())
                records += self._marked(table.name, [truncated], lsn)
        self._add(records, batch)

    def _emitted(self, message: LogicalMessage, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        if message.transactional:
            self._events += 1
        else:  # it is between transactions, and its place is its end: where a commit may begin
            self.lsn = self._last_commit = lsn
        is_done = message.transactional and self._is_done
        if self._on_message is not None and not is_done:
            self._add(self._on_message(message), batch)
        is_counted = message.transactional and self._transactions is not None
        if self._messages is None or not self._messages.has(message.prefix) or (is_done and not is_counted):
            return
        records = [self._messages.record(message, self._source_of(message, lsn), self._now_ns())]
        self._add(self._marked(COLLECTION, records, lsn) if is_counted else records, batch)

    def _committed(self, commit: Commit, lsn: int, batch: list[SourceRecord | Progress]) -> None:
        had_records = self._events > 0 and bool(batch) and batch[-1].position == self.position()
        begin, self._begin, self._events, self._to_skip = self._begin, None, 0, 0
        self.lsn = commit.end_lsn
        self._last_commit = commit.end_lsn
        if self._transactions is not None and begin is not None:
            self._add([self._transactions.ended(f"{begin.xid}:{lsn}", commit.committed_at_us // 1000)], batch)
        elif had_records or (batch and isinstance(batch[-1], Progress)):  # not delivered yet: it confirms everything
            batch[-1].position = self.position()
        else:
            batch.append(Progress(position=self.position()))

    @property
    def _is_done(self) -> bool:
        """Whether the change that was counted last had been done before the stream began."""
        return self._events <= self._to_skip

    def _table_of(self, change: RowChange, op: str | None) -> _Table | None:
        """Count a change of a row. Returns where it belongs, or None if no record is to be made of it.

        op: what the record is going to be; None if that is not known yet.
        """
        self._events += 1
        return self._recorded(self._tables[change.relation], change, op)

    def _recorded(self, table: _Table | None, change: RowChange | Truncate, op: str | None) -> _Table | None:
        """The table, if a record is to be made of the change. One that is done has one only to be counted."""
        if table is None:
            return None
        if self._is_done:
            if self._transactions is None:
                return None
        elif self._on_change is not None:
            self._on_change(table.relation, change, self.xid)
        return table if table.has_records and op not in self._skipped else None

    def _marked(self, collection: str, records: list[SourceRecord], lsn: int) -> list[SourceRecord]:
        """What a change has become, counted in its transaction; nothing if it had been done before the stream began."""
        if self._transactions is None:
            return records
        self._transactions.mark(records, collection, f"{self.xid}:{lsn}")
        return [] if self._is_done else records

    def _add(self, records: list[SourceRecord], batch: list[SourceRecord | Progress]) -> None:
        if records:
            records[-1].position = self.position()
            batch.extend(records)

    def _source(self, table: _Table, lsn: int) -> SourceBlock:
        block, relation = self._block.copy(), table.relation
        block["schema"], block["table"], block["lsn"] = relation.schema, relation.table, lsn
        block["sequence"] = f'[{self._before},"{lsn}"]'
        return block

    def _source_of(self, message: LogicalMessage, lsn: int) -> SourceBlock:
        if message.transactional:
            return self._block | {"lsn": lsn, "sequence": f'[{self._before},"{lsn}"]'}
        at_us = self._block.get("ts_us", self._now_ns() // 1000)
        block = source_block(self._server, self._database, at_us, None, lsn)
        return block | {"sequence": f'["{lsn}","{lsn}"]', "xmin": self._xmin()}
