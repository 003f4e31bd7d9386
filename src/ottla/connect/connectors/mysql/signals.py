"""Signals from a table of the database, as the binlog brings them, and the incremental snapshots that they start.

The binlog has transactions in the order in which they become visible: what is in it before a chunk's first mark was
seen by its reader, and what its reader saw is in it before the second mark. So the rows that change between the marks
are all that have to be let go. MySQL keeps that order with binlog_order_commits=ON, its default, which is therefore
asked for. The marks are rows of the signal table, as Debezium's are.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.api import ConnectError, Position, SourceContext, SourceRecord
from ottla.connect.connectors.capture.envelope import SourceBlock
from ottla.connect.connectors.capture.incremental import Chunk, Incremental, Key
from ottla.connect.connectors.capture.signals import ChunkReader, Readable, TableSignals
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.decoding.changes import RowChange, source_block
from ottla.connect.connectors.mysql.decoding.keys import KeyColumn, first_after, from_json, in_json, key_of, quoted
from ottla.connect.connectors.mysql.session import check_order, code_of, run
from ottla.connect.connectors.mysql.settings import MysqlSettings

_OPEN: Final = "snapshot-window-open"
_CLOSE: Final = "snapshot-window-close"
_FORM_CHANGED: Final = (1054, 1146)
"""Unknown column, unknown table: the statement that changed it is further on in the binlog."""
_DENIED: Final = (1044, 1142, 1143)


class SignalTable:
    """The table of `signal.data.collection`."""

    def __init__(self, settings: MysqlSettings, connection: Any) -> None:
        self.name = settings.signal_data_collection
        self.database, _, self.table = self.name.partition(".")
        self._sql = f"{quoted(self.database)}.{quoted(self.table)}".replace("%", "%%")
        self._deletes = settings.incremental_snapshot_watermarking_strategy == "insert_delete"
        self.connection = connection

    def check(self, catalog: Catalog) -> None:
        """Raises ConnectError if the table is not there, marks cannot be written, or would mean nothing."""
        check_order(self.connection)
        names = {name.lower() for name in catalog.selected(self.database, self.table)[0]}
        if not names >= {"id", "type", "data"}:
            raise ConnectError(
                f"signal.data.collection {self.name} is no table with the columns id, type and data: CREATE TABLE "
                f"{self.name} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048)), and GRANT "
                f"SELECT, INSERT, DELETE ON {self.name} TO the user of database.user"
            )
        try:
            self._run(f"INSERT INTO {self._sql} (id, type, data) SELECT '', '', '' FROM DUAL WHERE 1 = 0")
            if self._deletes:
                self._run(f"DELETE FROM {self._sql} WHERE 1 = 0")
        except ConnectError as error:
            what = "INSERT, DELETE" if self._deletes else "INSERT"
            if code_of(error) in _DENIED:
                sentence = f"signal.data.collection cannot be written: GRANT {what} ON {self.name} TO database.user"
                raise ConnectError(sentence) from error
            raise

    def open(self, number: str) -> None:
        """Write a chunk's first mark: it stands in the binlog where its transaction does."""
        self._insert(f"{number}-open", _OPEN)

    def close(self, number: str) -> None:
        """Write its second mark."""
        if self._deletes:
            self._run(f"DELETE FROM {self._sql} WHERE id = %s", f"{number}-open")
        else:
            self._insert(f"{number}-close", _CLOSE)

    def mark(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[str, bool] | None:
        """The number of the chunk whose mark a change is, and whether it is the second one."""
        row = after if after is not None else before or {}
        number, kind = str(row.get("id")).rpartition("-")[0], row.get("type")
        if before is None:
            return (number, kind == _CLOSE) if kind in (_OPEN, _CLOSE) else None
        return (number, True) if after is None and kind == _OPEN and self._deletes else None

    def _insert(self, mark: str, kind: str) -> None:
        self._run(f"INSERT INTO {self._sql} (id, type) VALUES (%s, %s)", mark, kind)

    def _run(self, statement: str, *parameters: Any) -> None:
        run(f"writing into signal.data.collection {self.name}", self.connection, statement, *parameters)


@dataclass(frozen=True, slots=True)
class MysqlTable(Readable):
    """A table: the names of its columns in order, what a query has to select, and the columns of its primary key."""

    names: Sequence[str]
    selected: str
    columns: Sequence[KeyColumn]


class MysqlChunks(ChunkReader[MysqlTable]):
    """Chunks as one statement sees them."""

    def __init__(
        self,
        settings: MysqlSettings,
        context: SourceContext,
        catalog: Catalog,
        signals: SignalTable,
        incremental: Incremental,
    ) -> None:
        super().__init__(context, incremental)
        self._settings = settings
        self._catalog = catalog
        self._signals = signals
        self.place = ("", 0)
        """File and position of the second mark of the chunk that is handed on."""

    def find(self, name: str) -> MysqlTable | str:
        """The table as it is now, or why it cannot be read."""
        database, _, table = name.partition(".")
        if not self._catalog.has(database, table):
            return "is not captured any more"
        names, selected = self._catalog.selected(database, table)
        if not names:
            return "is not there"
        columns = self._catalog.primary_key(database, table)
        if not columns:  # which a table has no longer that was dropped just now
            return "has no primary key" if self._catalog.selected(database, table)[0] else "is not there"
        inexact = next((each for each in columns if not each.is_exact), None)
        if inexact is not None:
            return f"has a primary key of type {inexact.kind}"
        key = [column.name for column in columns]
        return MysqlTable(self._catalog.describe(database, table, names), key, names, selected, columns)

    def read(self, table: MysqlTable, name: str, number: str) -> Chunk | None:
        """Read between two marks; None if the table is being changed: what changed it is to be seen first."""
        self._signals.open(number)
        try:
            return self._read(table, name, number)
        except ConnectError as error:
            if code_of(error) not in _FORM_CHANGED:
                raise
            return None
        finally:
            self._signals.close(number)

    def block(self, name: str, now_ns: int) -> SourceBlock:
        """Where rows come from that are read at this time."""
        database, _, table = name.partition(".")
        block = source_block(self._catalog.kind, self._settings.topic_prefix, now_ns // 1_000_000, *self.place)
        return block | {"db": database, "table": table, "snapshot": "incremental"}

    def key_of(self, change: RowChange, values: Sequence[Any]) -> Key | None:
        """The key of a row of the table that is being read, in the form of the binlog."""
        columns = self._table.columns if self._table is not None else ()
        try:
            return key_of(columns, change.names, values)
        except ValueError:
            return None

    def _read(self, table: MysqlTable, name: str, number: str) -> Chunk:
        incremental, limit = self._incremental, self._settings.incremental_snapshot_chunk_size
        doing, connection = f"reading a chunk of table {name}", self._signals.connection
        source = ".".join(map(quoted, name.split(".", 1))).replace("%", "%%")
        keys = ", ".join(each.selected for each in table.columns).replace("%", "%%")
        order = ", ".join(each.expression for each in table.columns).replace("%", "%%")
        if incremental.until is None:
            last_first = ", ".join(f"{each.expression} DESC" for each in table.columns).replace("%", "%%")
            found = run(doing, connection, f"SELECT {keys} FROM {source} ORDER BY {last_first} LIMIT %s", 1)
            incremental.until = in_json(found[0]) if found else None
        read: list[tuple[Any, ...]] = []
        if incremental.until is not None:
            after = from_json(incremental.after) if incremental.after is not None else None
            where, parameters = first_after(table.columns, after, from_json(incremental.until))
            names = table.selected.replace("%", "%%")
            statement = f"SELECT {names}, {keys} FROM {source} WHERE {where} ORDER BY {order} LIMIT %s"
            read = run(doing, connection, statement, *parameters, limit)
        width = len(table.names)
        by_key: dict[Key, Sequence[Any]] = {key_of(table.columns, table.names, row): row[:width] for row in read}
        last = in_json(read[-1][width:]) if read else incremental.after
        return Chunk(number, name, by_key, end=len(read) < limit, last=last)


class Signals(TableSignals[MysqlTable]):
    """Listens to the binlog for signals, changes and marks. `position`: where it was begun."""

    def __init__(
        self,
        settings: MysqlSettings,
        context: SourceContext,
        catalog: Catalog,
        connection: Any,
        position: Position,
        now_ns: Callable[[], int],
    ) -> None:
        incremental = Incremental(lambda: str(uuid.uuid4()), position.get("incremental"))
        self._table = SignalTable(settings, connection)
        self._chunks = MysqlChunks(settings, context, catalog, self._table, incremental)
        super().__init__(
            context, incremental, self._chunks, lambda: [f"{db}.{name}" for db, name, _ in catalog.tables()], now_ns
        )
        self._catalog = catalog

    def check(self) -> None:
        """Raises ConnectError if there is no signal table that can be written."""
        self._table.check(self._catalog)

    def has_signals(self, database: str, table: str) -> bool:
        """Whether this is the signal table."""
        return table == self._table.table and database == self._table.database

    def signalled(
        self,
        names: Sequence[str],
        before: Sequence[Any] | None,
        after: Sequence[Any] | None,
        place: tuple[str, int],
    ) -> list[SourceRecord]:
        """A row of the signal table changed. Returns the records of a chunk if that was its second mark."""
        old, new = _texts(names, before), _texts(names, after)
        mark = self._table.mark(old, new)
        if mark is not None:
            number, is_second = mark
            if is_second:
                self._chunks.place = place
                return self.closed(number)
            self._incremental.opened(number)
        elif old is None and new is not None:
            self.signal(new)
        return []

    def changed(self, change: RowChange) -> None:
        """Rows of another table changed."""
        chunk = self._incremental.chunk
        if chunk is None or not chunk.is_open or chunk.table != f"{change.database}.{change.table}":
            return
        keys = [self._chunks.key_of(change, values) for pair in change.rows for values in pair if values is not None]
        self._incremental.changed(chunk.table, [key for key in keys if key is not None])

    def restructured(self, statement: str) -> None:
        """A chunk of a table that may have another form now, or no rows any more, is read again."""
        chunk = self._incremental.chunk
        if chunk is not None and any(name in statement.lower() for name in chunk.table.lower().split(".", 1)):
            self._incremental.read_again()


def _texts(names: Sequence[str], values: Sequence[Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {
        name.lower(): value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in zip(names, values, strict=True)
    }
