"""The connector: a snapshot, then the changes after it, without a gap and without doing one twice."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

from ottla.connect.api import (
    ConnectError,
    Context,
    Part,
    Position,
    Progress,
    Retriable,
    Source,
    SourceContext,
    SourceLag,
    SourceRecord,
    Yielded,
)
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import TableEvents, changed_at
from ottla.connect.connectors.capture.snapshots import SnapshotRows, SnapshotTable, nothing_fits
from ottla.connect.connectors.capture.streaming import Heartbeats, follow
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.decoding.changes import Changes, source_block
from ottla.connect.connectors.mysql.decoding.keys import quoted
from ottla.connect.connectors.mysql.decoding.table_map import TableMap
from ottla.connect.connectors.mysql.events import EventTaker
from ottla.connect.connectors.mysql.gtids import end_of_binlog, mariadb_gtids, master_status, origin_of
from ottla.connect.connectors.mysql.identity import Binlog, check_same, created, identify
from ottla.connect.connectors.mysql.session import LOST, check_server, connect, explained, rows, run
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.signals import Signals, SignalTable
from ottla.connect.connectors.mysql.stream import BinlogStream, Connections, open_stream


class MysqlSource(Source[MysqlSettings]):
    """Changes of tables of a MySQL or MariaDB server, in Debezium's envelope, by its binlog.

    Each change comes once and in the order of commits. Tables are read first (`snapshot.mode`), as of one moment of the
    binlog. The server has to write names of columns to it: binlog_row_metadata=FULL (MySQL 8.0.14, MariaDB 10.5).
    """

    aliases: ClassVar[tuple[str, ...]] = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
    )

    def __init__(self, settings: MysqlSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._now_ns: Callable[[], int] = time.time_ns

    @classmethod
    def check(cls, settings: MysqlSettings, context: Context) -> None:
        """The server, its settings, the user's rights and the names in `table.include.list`."""
        with closing(connect(settings)) as connection:
            check_server(connection)
            master_status(connection)
            catalog = Catalog(connection, settings, "mysql")
            _check_tables(settings, catalog)
            if settings.signal_data_collection:
                SignalTable(settings, connection).check(catalog)

    @classmethod
    def lag(cls, settings: MysqlSettings, part: Part, position: Position, context: Context) -> SourceLag | None:
        """Binlog between the position and the server's end."""
        if part != {"server": settings.topic_prefix} or "file" not in position:
            return None
        with closing(connect(settings)) as connection:
            return identify(connection, _kind(connection)).lag(position, settings)

    def changed_at(self, record: SourceRecord, now_ms: int) -> int | None:
        """When the server wrote it to its binlog."""
        return changed_at(record)

    def part(self) -> Part:
        return {"server": self.settings.topic_prefix}

    def read(self, position: Position | None) -> Iterator[Yielded]:
        settings = self.settings
        if settings.snapshot_mode == "initial_only" and position is not None and "snapshot" not in position:
            return  # it is taken
        with closing(connect(settings)) as connection:
            check_server(connection)
            kind = _kind(connection)
            catalog = Catalog(connection, settings, kind)
            binlog = identify(connection, kind)
            start = self._go_on_from(connection, kind, binlog, position)
            if start is None:
                _check_tables(settings, catalog)
            elif not catalog.tables():
                self.context.warn("no table is captured that exists now: look at table.include.list")
            rules = Rules.of(settings, self.context, self._now_ns)
            if start is None or settings.snapshot_mode == "always":
                if settings.snapshot_mode in ("no_data", "never"):
                    start = end_of_binlog(connection, kind)
                else:
                    start = yield from self._snapshot(catalog, binlog, rules)
                    if settings.snapshot_mode == "initial_only":
                        return
            if start.get("server") != binlog.server:  # its file may be another server's
                start = {name: value for name, value in start.items() if name != "created"}
            yield from self._changes(connection, catalog, {**start, "server": binlog.server}, rules)

    def _go_on_from(self, connection: Any, kind: str, binlog: Binlog, position: Position | None) -> Position | None:
        """Where to go on streaming, or None: after a snapshot, because there was none, or it is needed."""
        if position is None or "snapshot" in position:
            return None
        needed = self.settings.snapshot_mode == "when_needed"
        if needed and position["file"] not in binlog.files:
            return None
        try:
            check_same(binlog, self.settings, position, connection, kind, self._created)
        except Retriable:
            raise
        except ConnectError:
            if not needed:
                raise
            return None
        return position

    def _created(self, file: str) -> int:
        return created(self.settings, Connections(), file)

    def _snapshot(self, catalog: Catalog, binlog: Binlog, rules: Rules) -> Generator[Yielded, None, Position]:
        """Rows of all tables as of one place in the binlog, which is returned; writers wait while it is noted."""
        settings = self.settings
        with closing(connect(settings, streaming=True)) as reading, closing(connect(settings)) as other:
            with explained("taking the snapshot"), reading.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            rows(other, "FLUSH TABLES WITH READ LOCK")
            try:
                start = end_of_binlog(other, catalog.kind)
                rows(reading, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            finally:
                rows(other, "UNLOCK TABLES")
            start |= {"server": binlog.server, "created": self._created(start["file"])}
            records = SnapshotRows(self.context, rules, settings.max_batch_size, {"snapshot": True})
            last = yield from records.batches(self._table(reading, catalog, start, each) for each in catalog.tables())
        if last is not None:
            last.position = start
            yield [last]
        else:
            yield Progress(position=start)
        return start

    def _table(self, reading: Any, catalog: Catalog, start: Position, which: tuple[str, str, int]) -> SnapshotTable:
        database, table, about = which
        names, columns = catalog.selected(database, table)
        events = catalog.describe(database, table, names)
        now_ms = self._now_ns() // 1_000_000
        block = source_block(catalog.kind, self.settings.topic_prefix, now_ms, start["file"], start["pos"])
        block |= {"db": database, "table": table}
        found = self._rows(reading, f"SELECT {columns} FROM {quoted(database)}.{quoted(table)}", f"{database}.{table}")
        return SnapshotTable(f"{database}.{table}", events, block, found, about)

    def _rows(self, reading: Any, statement: str, name: str) -> Iterator[tuple[Any, ...]]:
        with explained(f"reading table {name}"), reading.cursor() as cursor:
            cursor.execute(statement)
            while found := cursor.fetchmany(self.settings.snapshot_fetch_size):
                yield from found

    def _changes(self, connection: Any, catalog: Catalog, start: Position, rules: Rules) -> Iterator[Yielded]:
        settings, kind = self.settings, catalog.kind
        if kind == "mariadb" and not start.get("gtids"):  # set by hand: the library would begin anywhere
            gtids = mariadb_gtids(connection, start["file"], start["pos"])
            if gtids is None:
                raise ConnectError(f"no transaction ends at {start['pos']} in {start['file']}: {LOST}")
            start = {**start, "gtids": gtids}
        signals: Signals | None = None
        if settings.signal_data_collection:
            signals = Signals(settings, self.context, catalog, connection, start, self._now_ns)
            signals.check()

        def describe(table: TableMap) -> TableEvents | None:
            return catalog.describe_then(table, self.context.warn) if catalog.has(table.database, table.table) else None

        origin = origin_of(connection, kind, settings.topic_prefix)
        changes = Changes(origin, start, describe, rules, self.context.log.warning, signals)
        connections = Connections()
        with closing(open_stream(settings, kind, start, connections)) as opened:
            taker = EventTaker(changes, catalog, catalog.charsets())
            stream = BinlogStream(settings, opened, connections, taker, changes)
            query = partial(run, "running heartbeat.action.query", connection)
            heartbeats = Heartbeats(settings, query, self._now_ns, time.monotonic())
            yield from follow(stream.read, changes, heartbeats, time.monotonic, signals)


def _kind(connection: Any) -> str:
    return "mariadb" if "mariadb" in str(rows(connection, "SELECT VERSION()")[0][0]).lower() else "mysql"


def _check_tables(settings: MysqlSettings, catalog: Catalog) -> None:
    """Raises ConfigError if nothing is captured."""
    if not catalog.tables() and settings.table_include_list:
        raise nothing_fits(settings.table_include_list, catalog.all_names(), "the server", "database.table")
