"""Chunks of tables between two marks in the replication stream, for incremental snapshots."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from psycopg2 import errors, sql

from ottla.connect.api import SourceContext
from ottla.connect.connectors.capture.envelope import SourceBlock
from ottla.connect.connectors.capture.incremental import Chunk, Key
from ottla.connect.connectors.capture.signals import ChunkReader, Readable
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.decoding.changes import source_block
from ottla.connect.connectors.postgres.decoding.incremental import PREFIX, PostgresIncremental, Visibility
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation
from ottla.connect.connectors.postgres.session import PostgresConnection, connect, explained
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.snapshot import as_text, rows_of

_HOLD_MS: Final = 500
"""How long to wait for a concurrent change of a table: the stream is not read meanwhile."""
_TIMEOUT_S: Final = 10.0
_HOLDERS: Final = """
    SELECT format('the session of process %%s in database %%s (%%s)', pid, datname, state)
    FROM pg_stat_activity WHERE backend_xid::text = %(xid)s
    UNION ALL SELECT format('the prepared transaction %%L in database %%s', gid, database)
    FROM pg_prepared_xacts WHERE transaction::text = %(xid)s
"""


@dataclass(frozen=True, slots=True)
class PostgresTable(Readable):
    """A table, and how its columns are."""

    found: FoundTable
    relation: Relation


class PostgresChunks(ChunkReader[PostgresTable]):
    """Chunks as a transaction of their own sees them; their marks are logical messages."""

    _incremental: PostgresIncremental

    def __init__(
        self, settings: PostgresSettings, context: SourceContext, catalog: Catalog, incremental: PostgresIncremental
    ) -> None:
        super().__init__(context, incremental)
        self._settings = settings
        self._catalog = catalog
        self._waits_from = 0.0
        self._has_warned = False

    def find(self, name: str) -> PostgresTable | str:
        """The table as it is now, or why it cannot be read."""
        found = next((each for each in self._catalog.published() if each.full_name == name), None)
        if found is None:
            return (
                f"is not in publication {self._settings.publication_name}" if self._is_there(name) else "is not there"
            )
        relation = self._catalog.relation(found)
        events = self._catalog.describe(relation)
        key = self._catalog.row_key(relation)
        if events is None or not key:  # which a table has no longer that was dropped just now
            return "has no primary key" if self._is_there(name) else "is not there"
        if not set(key) <= {column.name for column in relation.columns if column.in_identity}:
            return "has a replica identity without its primary key, so deletes do not identify their row"
        return PostgresTable(events, key, found, relation)

    def _is_there(self, name: str) -> bool:
        return any(each.full_name == name for each in self._catalog.tables())

    def read(self, table: PostgresTable, name: str, number: str) -> Chunk | None:
        """Read between two marks; None while a transaction is open that began before the signal, or the table is being
        changed: it is to be found anew.
        """
        user = f"ottla {self._context.connector} incremental"
        with closing(connect(self._settings, user)) as connection, explained(f"reading a chunk of table {name}"):
            with connection.cursor() as cursor:
                if self._incremental.ready_from is None:
                    self._incremental.ready_from, self._waits_from = _number(cursor), time.monotonic()
                sees = _visibility(cursor)
                if not self._incremental.may_begin(sees.oldest):
                    self._wait(cursor, name, sees.oldest)
                    return None
            self._go_on()
            _emit(connection, f"{number} low")
            chunk = self._read(connection, table, number)
            if chunk is not None:
                _emit(connection, f"{number} high")
        return chunk

    def block(self, name: str, now_ns: int) -> SourceBlock:
        """Where rows come from that are read at this time."""
        block = source_block(self._settings.topic_prefix, self._settings.database_dbname, now_ns // 1000, None, None)
        schema, _, table = name.partition(".")
        return block | {"schema": schema, "table": table, "snapshot": "incremental"}

    def _wait(self, cursor: Any, name: str, oldest: int) -> None:
        """Say what a table waits for if that takes long: a session that was forgotten would hold it back for ever."""
        if time.monotonic() < self._waits_from + _TIMEOUT_S:
            return
        cursor.execute(_HOLDERS, {"xid": str(oldest)})
        holder = cursor.fetchone()
        self._has_warned = True
        self._context.warn(
            f"table {name} is read again when transaction {oldest} has ended, which was open at the signal"
            + (f": end {holder[0]}" if holder is not None else "")
        )

    def _go_on(self) -> None:
        """Nothing is waited for any more."""
        if self._has_warned:
            self._has_warned = False
            self._context.warn(None)

    def _read(self, connection: PostgresConnection, table: PostgresTable, number: str) -> Chunk | None:
        names = [column.name for column in table.relation.columns]
        at = [names.index(name) for name in table.key]
        incremental, limit = self._incremental, self._settings.incremental_snapshot_chunk_size
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True, autocommit=False)
        with connection.cursor() as cursor:
            as_text(cursor)
            if not (_hold(cursor, table.found) and self._is_as_found(table)):
                return None
            incremental.read_with(_visibility(cursor))
            keys = sql.SQL(", ").join(map(sql.Identifier, table.key))
            source = rows_of(table.found)
            if incremental.until is None:
                ordered = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in table.key)
                cursor.execute(sql.SQL("SELECT {} FROM {} ORDER BY {} LIMIT 1").format(keys, source, ordered))
                incremental.until = cursor.fetchone()
            rows: list[tuple[Any, ...]] = []
            if incremental.until is not None:
                columns = sql.SQL(", ").join(map(sql.Identifier, names))
                where = sql.SQL("({}) <= ({})").format(keys, _literals(incremental.until))
                if incremental.after is not None:
                    where += sql.SQL(" AND ({}) > ({})").format(keys, _literals(incremental.after))
                cursor.execute(
                    sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
                        columns, source, where, keys, sql.Literal(limit)
                    )
                )
                rows = cursor.fetchall()
        connection.rollback()
        connection.set_session(isolation_level="DEFAULT", readonly=False, autocommit=True)
        by_key: dict[Key, Sequence[Any]] = {tuple(row[index] for index in at): row for row in rows}
        last = next(reversed(by_key), incremental.after)
        return Chunk(number, table.found.full_name, by_key, end=len(rows) < limit, last=last)

    def _is_as_found(self, table: PostgresTable) -> bool:
        """Whether columns and key still are those that were found before the table was held."""
        relation = self._catalog.relation(table.found)
        events = self._catalog.describe(relation)
        return (
            relation == table.relation
            and self._catalog.row_key(relation) == table.key
            and events is not None
            and events.value_schema == table.events.value_schema
        )


def _hold(cursor: Any, table: FoundTable) -> bool:
    """Keep a table from being changed, before anything is seen of it: rewritten later, it would be seen as empty.

    False if it is being changed, or gone.
    """
    cursor.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_HOLD_MS)))
    try:
        cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(rows_of(table)))
    except (errors.LockNotAvailable, errors.UndefinedTable, errors.InvalidSchemaName):
        return False
    return True


def _emit(connection: PostgresConnection, mark: str) -> None:
    """A mark in a transaction of its own: it stands in the stream where that commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_logical_emit_message(true, %s, %s)", (PREFIX, mark))


def _number(cursor: Any) -> int:
    """A transaction of its own, later than all that are open: what a snapshot calls the next one may be among these."""
    cursor.execute("SELECT pg_current_xact_id()::text::bigint & 4294967295")
    return int(cursor.fetchone()[0])


def _visibility(cursor: Any) -> Visibility:
    """What a transaction sees that begins now, as the stream numbers transactions."""
    cursor.execute("SELECT pg_current_snapshot()::text")
    oldest, following, in_progress = cursor.fetchone()[0].split(":")
    open_ones = frozenset(int(each) & 0xFFFFFFFF for each in in_progress.split(",") if each)
    return Visibility(int(oldest) & 0xFFFFFFFF, int(following) & 0xFFFFFFFF, open_ones)


def _literals(key: Key) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, key))
