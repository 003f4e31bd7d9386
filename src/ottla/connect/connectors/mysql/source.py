"""The connector: a snapshot, then the changes after it, without a gap and without doing one twice."""

import ssl
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, ClassVar, Final, NamedTuple

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import HeartbeatLogEvent, RotateEvent
from pymysqlreplication.gtid import Gtid, GtidSet

from ottla.connect.api import (
    BadRecord,
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
from ottla.connect.connectors.capture.envelope import READ, TableEvents, changed_at, heartbeat
from ottla.connect.connectors.capture.snapshots import mark, nothing_fits, table_batches, without_last
from ottla.connect.connectors.capture.transactions import Transactions
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.decoding.changes import Changes, source_block
from ottla.connect.connectors.mysql.decoding.keys import quoted
from ottla.connect.connectors.mysql.decoding.table_map import TableMap
from ottla.connect.connectors.mysql.events import ADVICE, EVENTS, UNKNOWN, EventTaker
from ottla.connect.connectors.mysql.identity import Binlog, check_same, created, identify
from ottla.connect.connectors.mysql.session import (
    LOST,
    check_server,
    connect,
    connection_settings,
    explained,
    rows,
    run,
)
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.signals import Signals, SignalTable
from ottla.connect.schema import Shared

_BEAT_S: Final = 0.5
_BATCH_S: Final = 0.05
"""How long a batch is gathered that has something."""
_EMPTY_S: Final = 0.5
"""How long events without records are read: of tables that are not captured, or already processed."""


class _Arrived(NamedTuple):
    """Up to `max.batch.size` records; whether nothing more has come; why nothing more can be read, if so: what came
    before is good."""

    batch: list[SourceRecord | Progress]
    at_end: bool
    broken: ConnectError | None = None


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
        self._connections = 0
        self._connection: Any = None

    @classmethod
    def check(cls, settings: MysqlSettings, context: Context) -> None:
        """The server, its settings, the user's rights and the names in `table.include.list`."""
        with closing(connect(settings)) as connection:
            check_server(connection)
            _master(connection)
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
            if start is None or settings.snapshot_mode == "always":
                if settings.snapshot_mode in ("no_data", "never"):
                    start = self._now(connection, kind)
                else:
                    start = yield from self._snapshot(catalog, kind, binlog)
                    if settings.snapshot_mode == "initial_only":
                        return
            if start.get("server") != binlog.server:  # its file may be another server's
                start = {name: value for name, value in start.items() if name != "created"}
            yield from self._follow(connection, catalog, kind, {**start, "server": binlog.server})

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
        self._connections = 0
        return created(self.settings, self._connected, file)

    @staticmethod
    def _now(connection: Any, kind: str) -> dict[str, Any]:
        """The end of the binlog."""
        file, pos, gtids = _master(connection)
        position: dict[str, Any] = {"file": file, "pos": pos}
        if kind == "mariadb":
            return position | {"gtids": _mariadb_gtids(connection, file, pos) or ""}
        if rows(connection, "SELECT @@GLOBAL.gtid_mode")[0][0] != "ON":
            return position  # there are transactions without a GTID, or may be
        return position | {"gtids": gtids.replace("\n", "")}

    def _snapshot(self, catalog: Catalog, kind: str, binlog: Binlog) -> Generator[Yielded, None, Position]:
        """Rows of all tables as of one place in the binlog, which is returned; writers wait while it is noted."""
        with closing(connect(self.settings, streaming=True)) as reading, closing(connect(self.settings)) as other:
            with explained("taking the snapshot"), reading.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            rows(other, "FLUSH TABLES WITH READ LOCK")
            try:
                start = self._now(other, kind)
                rows(reading, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            finally:
                rows(other, "UNLOCK TABLES")
            start |= {"server": binlog.server, "created": self._created(start["file"])}
            last = yield from without_last(
                batch
                for number, which in enumerate(catalog.tables())
                for batch in self._table(reading, catalog, kind, start, which, first=number == 0)
            )
        if last is not None:
            mark(last, "last")
            last.position = start
            yield [last]
        else:
            yield Progress(position=start)
        return start

    def _table(
        self, reading: Any, catalog: Catalog, kind: str, start: Position, which: tuple[str, str, int], *, first: bool
    ) -> Iterator[list[SourceRecord]]:
        what = f"snapshot of {which[0]}.{which[1]}"
        records = self._rows(reading, catalog, kind, start, which, what)
        done = yield from table_batches(records, self.settings.max_batch_size, first=first)
        self.context.progress(what, done, done)

    def _rows(
        self, reading: Any, catalog: Catalog, kind: str, start: Position, which: tuple[str, str, int], what: str
    ) -> Iterator[SourceRecord]:
        """A table's rows. what: the name for progress reports."""
        database, table, about = which
        names, columns = catalog.selected(database, table)
        events = catalog.describe(database, table, names)
        block = source_block(kind, self.settings.topic_prefix, self._now_ns() // 1_000_000, start["file"], start["pos"])
        block = Shared(block, db=database, table=table, snapshot="true")
        done = 0
        with explained(f"reading table {database}.{table}"), reading.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {quoted(database)}.{quoted(table)}")
            while found := cursor.fetchmany(self.settings.snapshot_fetch_size):
                for values in found:
                    try:
                        record = events.created(values, block, self._now_ns(), READ)
                    except BadRecord as error:
                        self.context.reject(error)
                    else:
                        record.position = {"snapshot": True}
                        yield record
                done += len(found)
                self.context.progress(what, done, max(done, about))

    def _follow(self, connection: Any, catalog: Catalog, kind: str, start: Position) -> Iterator[Yielded]:
        settings = self.settings
        if kind == "mariadb" and not start.get("gtids"):  # set by hand: the library would begin anywhere
            gtids = _mariadb_gtids(connection, start["file"], start["pos"])
            if gtids is None:
                raise ConnectError(f"no transaction ends at {start['pos']} in {start['file']}: {LOST}")
            start = {**start, "gtids": gtids}
        signals: Signals | None = None
        if settings.signal_data_collection:
            signals = Signals(settings, self.context, catalog, connection, kind, start, self._now_ns)
            signals.check()

        def describe(table: TableMap) -> TableEvents | None:
            return catalog.describe_then(table, self.context.warn) if catalog.has(table.database, table.table) else None

        changes = Changes(
            kind,
            settings.topic_prefix,
            start,
            describe,
            _add_mariadb_gtid if kind == "mariadb" else _add_mysql_gtid,
            self._now_ns,
            self.context.log.warning,
            _origin(connection, kind),
            frozenset(settings.skipped_operations),
            Transactions(settings.transaction_topic) if settings.provide_transaction_metadata else None,
            signals,
            self.context.reject,
        )
        stream = self._stream(kind, start)
        taker = EventTaker(changes, catalog, catalog.charsets())
        beat_at = time.monotonic()
        waited_for = False
        try:
            while True:
                batch, at_end, broken = self._batch(stream, taker, changes)
                if broken is not None:
                    yield batch
                    raise broken
                now = time.monotonic()
                if settings.heartbeat_interval_ms and now >= beat_at and not changes.in_transaction:
                    beat_at = now + settings.heartbeat_interval_ms / 1000
                    batch.append(self._beat(connection, changes))
                yield batch or None
                waited_for = waited_for or any(isinstance(each, SourceRecord) for each in batch)
                if at_end and waited_for:
                    waited_for = False
                    yield None  # a waiting runtime need not wait for the next event
                if signals is not None and not changes.in_transaction:
                    signals.go_on()
        finally:
            stream.close()

    def _beat(self, connection: Any, changes: Changes) -> SourceRecord:
        settings = self.settings
        if settings.heartbeat_action_query:
            run("running heartbeat.action.query", connection, settings.heartbeat_action_query)
        topic = f"{settings.topic_heartbeat_prefix}.{settings.topic_prefix}"
        return heartbeat(topic, settings.topic_prefix, self._now_ns() // 1_000_000, changes.position())

    def _stream(self, kind: str, start: Position) -> Any:
        self._connections = 0
        by_gtid: dict[str, Any] = {"auto_position": start["gtids"]} if start.get("gtids") else {}
        by_place = {"log_file": start["file"], "log_pos": start["pos"], "resume_stream": True}
        return BinLogStreamReader(
            connection_settings=connection_settings(self.settings),
            server_id=self.settings.replica_id,
            blocking=True,
            slave_heartbeat=_BEAT_S,
            is_mariadb=kind == "mariadb",
            enable_logging=False,
            pymysql_wrapper=self._connected,
            only_events=EVENTS,
            filter_non_implemented_events=False,
            **(by_gtid or by_place),
        )

    def _connected(self, **options: Any) -> Any:
        """Two connections for each stream: a third would be the library's own try, from the start, after one broke."""
        self._connections += 1
        if self._connections > 2:
            raise Retriable("the server closed the connection on which its binlog was read")
        if "db" in options:  # the library's name for it, which the driver is about to forget
            options["database"] = options.pop("db")
            return pymysql.connect(**options)
        self._connection = pymysql.connect(**options)  # the stream's has no database
        return self._connection

    def _batch(self, stream: Any, taker: EventTaker, changes: Changes) -> _Arrived:
        """Waits a little for the first of it. Raises ConnectError if it is what cannot be read."""
        batch: list[SourceRecord | Progress] = []
        try:
            return _Arrived(batch, at_end=self._fill(batch, stream, taker, changes))
        except ConnectError as broken:
            if not batch:
                raise
            return _Arrived(batch, at_end=False, broken=broken)

    def _fill(self, batch: list[SourceRecord | Progress], stream: Any, taker: EventTaker, changes: Changes) -> bool:
        """Add what has arrived; returns whether nothing more has."""
        until = time.monotonic() + _EMPTY_S
        with explained("reading the binlog"):
            while len(batch) < self.settings.max_batch_size and time.monotonic() < until:
                event = _next(stream)
                if isinstance(event, HeartbeatLogEvent):
                    if self._more_came():
                        continue  # MySQL sends one for each event that it passes over because its GTID is done
                    return True
                was_empty = not batch
                taker.take(event, batch)
                if was_empty and batch:
                    until = time.monotonic() + _BATCH_S
                # after a file's end come events that are not handed on, and then perhaps nothing for long
                if batch and not changes.in_transaction and (isinstance(event, RotateEvent) or not self._more_came()):
                    return True
        return False

    def _more_came(self) -> bool:
        """Whether something can be read from the stream's connection at once."""
        sock, buffered = self._connection._sock, self._connection._rfile  # the driver has no public way
        sock.setblocking(False)
        try:
            return bool(buffered.peek(1))
        except ssl.SSLWantReadError:
            return False
        finally:
            sock.setblocking(True)


def _kind(connection: Any) -> str:
    return "mariadb" if "mariadb" in str(rows(connection, "SELECT VERSION()")[0][0]).lower() else "mysql"


def _next(stream: Any) -> Any:
    """The next event. Raises Retriable if the stream has ended, ConnectError for an event that is unknown."""
    try:
        event = stream.fetchone()
    except UNKNOWN as error:
        raise ConnectError(
            f"the event of the binlog after {stream.log_file}:{stream.log_pos} cannot be read "
            f"({type(error).__name__}: {error}); {ADVICE}"
        ) from error
    if event is None:
        raise Retriable("the server ended the stream of its binlog")
    return event


def _master(connection: Any) -> tuple[str, int, str]:
    """File, position and GTIDs (MySQL's) of the end of the binlog. MySQL 8.4 has another name for the question."""
    try:
        found = rows(connection, "SHOW MASTER STATUS")
    except ConnectError as error:
        if not isinstance(error.__cause__, pymysql.err.ProgrammingError):
            raise
        found = rows(connection, "SHOW BINARY LOG STATUS")
    if not found:
        raise ConnectError("the server writes no binlog: set log_bin and restart it")
    row = found[0]
    return str(row[0]), int(row[1]), str(row[4]) if len(row) > 4 else ""


def _mariadb_gtids(connection: Any, file: str, pos: int) -> str | None:
    """The GTIDs of all that is before a place in the binlog; None if there is no such place."""
    gtids = rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0]
    return None if gtids is None else str(gtids)


def _origin(connection: Any, kind: str) -> str:
    """What GTIDs have in them of transactions that began at this server."""
    if kind == "mariadb":
        return f"-{rows(connection, 'SELECT @@server_id')[0][0]}-"
    return f"{rows(connection, 'SELECT @@server_uuid')[0][0]}:"


def _add_mariadb_gtid(gtids: str, gtid: str) -> str:
    """The last one of each domain counts."""
    domains = {each.split("-", 1)[0]: each for each in filter(None, gtids.split(","))}
    return ",".join((domains | {gtid.split("-", 1)[0]: gtid}).values())


def _add_mysql_gtid(gtids: str, gtid: str) -> str:
    if not gtids:
        return gtid
    merged = GtidSet(gtids)
    merged.merge_gtid(Gtid(gtid))
    return str(merged)


def _check_tables(settings: MysqlSettings, catalog: Catalog) -> None:
    """Raises ConfigError if nothing is captured."""
    if not catalog.tables() and settings.table_include_list:
        raise nothing_fits(settings.table_include_list, catalog.all_names(), "the server", "database.table")
