"""PURE: messages of the replication stream as records, each with the position to go on from after it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.connect.api import BadRecord, Position, Progress, SourceRecord
from ottla.connect.connectors.capture import envelope
from ottla.connect.connectors.capture.changes import Batch, EventWriter, Rules
from ottla.connect.connectors.capture.envelope import SourceBlock, TableEvents, kept, source_schema
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
from ottla.connect.connectors.postgres.decoding.place import Place
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


@dataclass(frozen=True, slots=True)
class Origin:
    """The name of the capture, the database, and what queries the slot's xmin."""

    server: str
    database: str
    xmin: Callable[[], int | None] = lambda: None


def source_block(server: str, database: str, at_us: int, xid: int | None, lsn: int | None) -> SourceBlock:
    """Where a change comes from, but for the table; `at_us`: when it was committed."""
    own = {"schema": "", "table": "", "txId": xid, "lsn": lsn, "xmin": None}
    return envelope.source_block(CONNECTOR, server, at_us, database, **own)


RowChange = Insert | Update | Delete
Describe = Callable[[Relation], TableEvents | None]
"""What becomes of the changes of a table as it is now; None: they are not captured."""


class Listener(Protocol):
    """Receives changes and messages for incremental snapshots."""

    @property
    def table(self) -> str:
        """schema.table of the signal table, of which no records are made."""

    def changed(self, relation: Relation, change: RowChange | Truncate, xid: int | None) -> None:
        """A row changed in this transaction, or a table was truncated."""

    def marked(self, message: LogicalMessage) -> list[SourceRecord]:
        """A logical message came. Returns the records of a chunk if that was its second mark."""

    def position(self) -> Mapping[str, Any]:
        """What a position has to say about it."""


@dataclass(frozen=True, slots=True)
class _Table:
    """What becomes of a table's changes. `has_records`: False for one that is only listened to."""

    relation: Relation
    events: TableEvents
    name: str
    has_records: bool


class Changes:
    """Takes one message after the other.

    position: where the stream was started. listener: if there is a signal table. messages: if logical messages are
    captured.
    """

    def __init__(
        self,
        origin: Origin,
        position: Position,
        describe: Describe,
        rules: Rules,
        listener: Listener | None = None,
        messages: Messages | None = None,
    ) -> None:
        also = listener.position if listener is not None else None
        self._place = Place(position, also, sends_begins=rules.transactions is not None)
        self._writer = EventWriter(rules, self._place.count, self._place.position)
        self._blocks = _SourceBlocks(origin, rules.now_ns)
        self._describe = describe
        self._rules = rules
        self._listener = listener
        self._messages = messages
        self._tables: dict[int, _Table | None] = {}
        self._take: Mapping[type[Message], Callable[[Any, int, Batch], None]] = {
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
        return self._place.begin is not None

    def take(self, message: Message, lsn: int, batch: Batch) -> None:
        """Append the records of a message to `batch`; `lsn` is its position in the stream.

        Raises BadRecord for a value that no schema can hold, unless `rules.reject` skips its change.
        """
        take = self._take.get(message.__class__)
        if take is not None:
            try:
                take(message, lsn, batch)
            except BadRecord as error:
                self._writer.refuse(error)

    def caught_up(self, lsn: int) -> Progress | None:
        """The server has nothing to send before `lsn`: the position moves there, unless a transaction is on its way."""
        if self.in_transaction or lsn <= self._place.lsn:
            return None
        self._place.lsn = lsn
        return Progress(position=self.position())

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        return self._place.position()

    def _began(self, begin: Begin, lsn: int, batch: Batch) -> None:
        is_sent = self._place.began(begin)
        self._blocks.began(begin, self._place.commit)
        self._writer.began(f"{begin.xid}:{lsn}", begin.committed_at_us // 1000, batch, is_sent=is_sent)

    def _described(self, relation: Relation, _lsn: int, _batch: Batch) -> None:
        events = self._describe(relation)
        name = f"{relation.schema}.{relation.table}"
        has_records = self._listener is None or name != self._listener.table
        self._tables[relation.oid] = None if events is None else _Table(relation, events, name, has_records)

    def _inserted(self, change: Insert, lsn: int, batch: Batch) -> None:
        table = self._table_of(change, "c")
        if table is not None:
            block = self._blocks.of_table(table.relation, lsn)
            records = [table.events.created(change.new, block, self._rules.now_ns())]
            self._writer.add(self._counted(records, table.name, lsn), batch)

    def _updated(self, change: Update, lsn: int, batch: Batch) -> None:
        table = self._table_of(change, None)
        if table is not None:
            old, block = change.old, self._blocks.of_table(table.relation, lsn)
            records = table.events.updated(old, change.old_is_whole, change.new, block, self._rules.now_ns())
            self._writer.add(self._counted(kept(records, self._rules.skipped), table.name, lsn), batch)

    def _deleted(self, change: Delete, lsn: int, batch: Batch) -> None:
        table = self._table_of(change, "d")
        if table is not None:
            block, is_whole = self._blocks.of_table(table.relation, lsn), change.old_is_whole
            records = table.events.deleted(change.old, block, self._rules.now_ns(), old_is_whole=is_whole)
            self._writer.add(self._counted(records, table.name, lsn), batch)

    def _truncated(self, change: Truncate, lsn: int, batch: Batch) -> None:
        self._place.count.events += 1
        records: list[SourceRecord] = []
        for oid in change.relations:
            table = self._recorded(self._tables.get(oid), change, "t")
            if table is not None:
                truncated = table.events.truncated(self._blocks.of_table(table.relation, lsn), self._rules.now_ns())
                records += self._counted([truncated], table.name, lsn)
        self._writer.add(records, batch)

    def _emitted(self, message: LogicalMessage, lsn: int, batch: Batch) -> None:
        if message.transactional:
            self._place.count.events += 1
        else:  # it is between transactions, and its place is its end: where a commit may begin
            self._place.passed(lsn)
        is_done = message.transactional and self._place.count.is_done
        if self._listener is not None and not is_done:
            self._writer.add(self._listener.marked(message), batch)
        is_counted = message.transactional and self._rules.transactions is not None
        if self._messages is None or not self._messages.has(message.prefix) or (is_done and not is_counted):
            return
        records = [self._messages.record(message, self._blocks.of_message(message, lsn), self._rules.now_ns())]
        self._writer.add(self._counted(records, COLLECTION, lsn) if is_counted else records, batch)

    def _committed(self, commit: Commit, lsn: int, batch: Batch) -> None:
        begin = self._place.begin
        if begin is not None:
            self._writer.ended(f"{begin.xid}:{lsn}", commit.committed_at_us // 1000, batch)
        self._writer.moved(lambda: self._place.ended(commit.end_lsn), batch)

    def _table_of(self, change: RowChange, op: str | None) -> _Table | None:
        """Count a change of a row. Returns where it belongs, or None if no record is to be made of it.

        op: what the record is going to be; None if that is not known yet.
        """
        self._place.count.events += 1
        return self._recorded(self._tables[change.relation], change, op)

    def _recorded(self, table: _Table | None, change: RowChange | Truncate, op: str | None) -> _Table | None:
        """The table, if a record is to be made of the change. One that is done has one only to be counted."""
        if table is None or self._writer.passes_over:
            return None
        if self._listener is not None and not self._place.count.is_done:
            self._listener.changed(table.relation, change, self._xid)
        return table if table.has_records and op not in self._rules.skipped else None

    @property
    def _xid(self) -> int | None:
        """The id of the transaction that is being read."""
        return self._place.begin.xid if self._place.begin is not None else None

    def _counted(self, records: list[SourceRecord], collection: str, lsn: int) -> list[SourceRecord]:
        return self._writer.counted(records, collection, lambda: f"{self._xid}:{lsn}")


class _SourceBlocks:
    """Makes the blocks of one transaction after the other; the slot's xmin is queried once in each."""

    def __init__(self, origin: Origin, now_ns: Callable[[], int]) -> None:
        self._origin = origin
        self._now_ns = now_ns
        self._block: SourceBlock = {}
        self._before = "null"
        """In JSON, where the transaction before ended."""

    def began(self, begin: Begin, before: int | None) -> None:
        """A transaction begins; `before`: where the one before ended."""
        self._block = source_block(self._origin.server, self._origin.database, begin.committed_at_us, begin.xid, None)
        self._block["xmin"] = self._origin.xmin()
        self._before = "null" if before is None else f'"{before}"'

    def of_table(self, relation: Relation, lsn: int) -> SourceBlock:
        """The block of a change of a table."""
        block = self._block.copy()
        block["schema"], block["table"], block["lsn"] = relation.schema, relation.table, lsn
        block["sequence"] = f'[{self._before},"{lsn}"]'
        return block

    def of_message(self, message: LogicalMessage, lsn: int) -> SourceBlock:
        """The block of a logical message, which may be in no transaction."""
        if message.transactional:
            return self._block | {"lsn": lsn, "sequence": f'[{self._before},"{lsn}"]'}
        at_us = self._block.get("ts_us", self._now_ns() // 1000)
        block = source_block(self._origin.server, self._origin.database, at_us, None, lsn)
        return block | {"sequence": f'["{lsn}","{lsn}"]', "xmin": self._origin.xmin()}
