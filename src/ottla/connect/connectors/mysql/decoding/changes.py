"""PURE: events of the binlog as records, each with the position to go on from after it.

A position is `{"file", "pos", "gtids", "events": n, "transaction"}`: all transactions before `pos` in `file` are done,
which are those of `gtids`, and the first n rows of the one that begins there, whose GTID is `transaction`. `server` and
`created` identify the binlog of `file`: its server, and the second in which the file was begun. The stream
is started by GTIDs where they are known to be complete (MySQL would send again the missing ones of a set), so that
another
server with the same data works as well. That transaction may come later there; until then `half_done` keeps the
finished
part of it by its GTID. `incremental` is the state of incremental snapshots; `begun` means that the begin record of that
transaction has been sent, where such records are configured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ottla.connect.api import BadRecord, Position, Progress, Schema, SourceRecord
from ottla.connect.connectors.capture.envelope import VERSION, SourceBlock, TableEvents, kept, source_schema
from ottla.connect.connectors.capture.transactions import Transactions
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
AddGtid = Callable[[str, str], str]
"""A set of GTIDs and one more."""


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
    """Takes one event after the other. `kind`: mysql or mariadb; `now_ns`: the clock of `ts_ms`.

    warn: called for a transaction that was half done and is gone. origin: what all GTIDs have in them that the server
    gives to its own transactions, and no others.
    transactions: if the topic of transactions is to get begins and ends. listener: if there is a signal table.
    reject: called with a row that no schema can hold, to skip it or raise.
    """

    def __init__(
        self,
        kind: str,
        server: str,
        position: Position,
        describe: Describe,
        add_gtid: AddGtid,
        now_ns: Callable[[], int],
        warn: Callable[[str], None],
        origin: str,
        skipped: frozenset[str] = frozenset(),
        transactions: Transactions | None = None,
        listener: Listener | None = None,
        reject: Callable[[BadRecord], None] | None = None,
    ) -> None:
        self._kind = kind
        self._server = server
        self._describe = describe
        self._add_gtid = add_gtid
        self._now_ns = now_ns
        self._warn = warn
        self._origin = origin
        self._skipped = skipped
        self._transactions = transactions
        self._listener = listener
        self._reject = reject
        self._tables: dict[TableMap, TableEvents | None] = {}
        self._place = _Place(position["file"], position["pos"], position.get("created"))
        self._next: _Place | None = None
        """Where the stream is, if that is another file and a transaction was not ended in the one before."""
        self._server_identity: Any = position.get("server")
        self._gtids: str | None = position.get("gtids")
        """Empty if none was done; None if it is not known which were."""
        self._to_skip: int = position.get("events", 0)
        """Rows of this transaction that were done before the stream began."""
        self._begin_told: bool = position.get("begun", False)
        self._half_done: str | None = position.get("transaction")
        """The GTID of the one that these two are about, if they were so before the stream began."""
        self._half_done_at = self._place
        self._later: dict[str, dict[str, Any]] = dict(position.get("half_done") or {})
        """Finished parts of transactions that come later on this server."""
        self._gtid: str | None = None
        self._events = 0
        self.in_transaction = False
        """Amid a transaction, of which more follows."""
        self._has_end = False
        """Whether an event of its own ends it, as it does for all but a statement that is a transaction by itself."""

    def position(self) -> dict[str, Any]:
        """Where to go on from now."""
        place = self._place if self._half_done is None else self._half_done_at
        position: dict[str, Any] = {"file": place.file, "pos": place.pos}
        if self._server_identity is not None and place.created is not None:
            position |= {"server": self._server_identity, "created": place.created}
        if self._gtids is not None:
            position["gtids"] = self._gtids
        if self._events or self._to_skip:
            position["events"] = max(self._events, self._to_skip)
        if self._begin_told:
            position["begun"] = True
        transaction = self._gtid or self._half_done
        if transaction is not None and ("events" in position or self._begin_told):
            position["transaction"] = transaction
        if self._later:
            position["half_done"] = dict(self._later)
        if self._listener is not None:
            position.update(self._listener.position())
        return position

    def rotated(self, file: str, pos: int) -> None:
        """The stream continues in another file, whose first event carries the time it was begun.

        By GTIDs it begins at the begin of a file, which may be the one that is known to be done up to a place.
        """
        known = file == self._place.file and self._place.created is not None
        self._next = _Place(file, max(pos, self._place.pos) if known else pos, None)

    def file_began(self, created: int) -> None:
        """The file in which the stream goes on was begun in this second.

        A transaction that a crash has cut off has no end: it stays undone, and its place stays until another begins.
        """
        if self._next is not None:
            self._next = replace(self._next, created=created)
        if not self.in_transaction:
            self._enter()

    def _enter(self) -> None:
        """Be in the file in which the stream is."""
        if self._next is not None:
            self._place, self._next = self._next, None

    def numbered(self, gtid: str) -> None:
        """What comes next is a transaction, or one statement, with a GTID."""
        self._enter()
        self.in_transaction, self._has_end, self._events, self._gtid = True, False, 0, gtid
        if self._half_done == gtid and self._origin in gtid and self._place.file != self._half_done_at.file:
            self._tell_of_loss(gtid, self._to_skip, "another one")  # after a crash a server begins a file
            self._to_skip, self._begin_told = 0, False
        elif self._half_done not in (None, gtid):
            self._later[self._half_done] = {"events": self._to_skip, "begun": self._begin_told}
            self._to_skip, self._begin_told = 0, False
        self._half_done = None
        done = self._later.pop(gtid, None)
        if done is not None:
            self._to_skip, self._begin_told = done["events"], done["begun"]
        for gone in [each for each in self._later if self._kind == "mariadb" and _domain(each) == _domain(gtid)]:
            self._tell_of_loss(gone, self._later.pop(gone)["events"], gtid)

    def began(self, at_s: int, batch: list[SourceRecord | Progress]) -> None:
        """A transaction begins, whose end comes as an event; `at_s`: seconds since 1970."""
        self._enter()
        self.in_transaction, self._has_end, self._events = True, True, 0
        if self._transactions is None:
            return
        self._transactions.reset()
        if not self._begin_told:
            self._begin_told = True
            self._add([self._transactions.began(self._id(), at_s * 1000)], batch)

    def restructured(self, statement: str) -> None:
        """A statement may have changed tables: look at them again."""
        self._tables.clear()
        if self._listener is not None:
            self._listener.restructured(statement)

    def stated(self, pos: int, batch: list[SourceRecord | Progress]) -> None:
        """A statement is in the binlog as such: a transaction by itself, unless it is amid one. `pos`: what follows."""
        if not self._has_end:
            self._moved(pos, batch)

    def committed(self, pos: int, at_s: int, batch: list[SourceRecord | Progress]) -> None:
        """The transaction ends; `pos` is what follows it."""
        end = self._transactions.ended(self._id(), at_s * 1000) if self._transactions is not None else None
        if end is not None and self._has_end:
            batch.append(end)
        self._moved(pos, batch)

    def change(self, change: RowChange, pos: int, batch: list[SourceRecord | Progress]) -> None:
        """Rows changed. Raises BadRecord for a value that no schema can hold, unless `reject` skips its row."""
        listener = self._listener
        if listener is not None:
            if listener.has_signals(change.database, change.table):
                for before, after in change.rows:
                    self._events += 1
                    if not self._is_done:
                        self._add(listener.signalled(change.names, before, after, (self._place.file, pos)), batch)
                return
            listener.changed(change)
        if change.described not in self._tables:
            self._tables[change.described] = self._describe(change.described)
        table = self._tables[change.described]
        block = source_block(self._kind, self._server, change.at_s * 1000, self._place.file, change.pos)
        block |= {"db": change.database, "table": change.table, "server_id": change.server_id, "gtid": self._gtid}
        name, transactions = f"{change.database}.{change.table}", self._transactions
        for number, (before, after) in enumerate(change.rows):
            self._events += 1
            if table is None or (self._is_done and transactions is None):
                continue
            try:
                records = self._row(table, before, after, block | {"row": number})
            except BadRecord as error:
                if self._reject is None:
                    raise
                if not self._is_done:
                    self._reject(error)
                continue
            if transactions is not None:
                transactions.mark(records, name, self._id())
            if not self._is_done:
                self._add(records, batch)

    @property
    def _is_done(self) -> bool:
        """Whether the row that was counted last had been done before the stream began."""
        return self._events <= self._to_skip

    def _id(self) -> str:
        """The id of the transaction being processed, in Debezium's form."""
        return self._gtid or f"file={self._place.file},pos={self._place.pos}"

    def _add(self, records: list[SourceRecord], batch: list[SourceRecord | Progress]) -> None:
        if records:
            records[-1].position = self.position()
            batch.extend(records)

    def _tell_of_loss(self, gtid: str, rows: int, instead: str) -> None:
        self._warn(
            f"transaction {gtid}, whose first rows ({rows}) were handed on, is no longer in the binlog, where {instead}"
            " has its place (after a failover, or a crash without sync_binlog=1): the server does not have these rows"
        )

    def _moved(self, pos: int, batch: list[SourceRecord | Progress]) -> None:
        """Everything before `pos` is done; the last entry of the batch carries that if it was of this transaction."""
        last = batch[-1] if batch else None
        takes_it = isinstance(last, Progress) or (
            last is not None and (last.position is None or (self._events > 0 and last.position == self.position()))
        )
        if self._gtid is not None and self._gtids is not None:
            self._gtids = self._add_gtid(self._gtids, self._gtid)
        self.in_transaction, self._has_end, self._begin_told = False, False, False
        self._events, self._gtid, self._to_skip, self._half_done = 0, None, 0, None
        self._place = replace(self._place, pos=pos)
        if last is not None and takes_it:  # not handed on yet
            last.position = self.position()
        else:
            batch.append(Progress(position=self.position()))

    def _row(
        self, table: TableEvents, before: list[Any] | None, after: list[Any] | None, block: SourceBlock
    ) -> list[SourceRecord]:
        if before is None and after is not None:
            return [table.created(after, block, self._now_ns())] if "c" not in self._skipped else []
        if before is not None and after is not None:
            if "u" in self._skipped:  # also one of the key: Debezium's connectors do not read such events
                return []
            return kept(table.updated(before, True, after, block, self._now_ns()), self._skipped)
        if before is not None:
            return table.deleted(before, block, self._now_ns()) if "d" not in self._skipped else []
        return []


@dataclass(frozen=True, slots=True)
class _Place:
    """created: when the file was begun, in seconds since 1970; None if that is not known."""

    file: str
    pos: int
    created: int | None


def _domain(gtid: str) -> str:
    """The domain of a GTID of MariaDB: the transactions of a domain have one order on all servers."""
    return gtid.split("-", 1)[0]
