"""Chunks of tables between two marks in the replication stream, for incremental snapshots."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from psycopg2 import sql

from ottla.connect.api import SourceContext, SourceRecord
from ottla.connect.connectors.capture.envelope import READ, TableEvents
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.changes import source_block
from ottla.connect.connectors.postgres.incremental import PREFIX, Chunk, Incremental, Key
from ottla.connect.connectors.postgres.session import PostgresConnection, connect, explained
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.snapshot import as_text


class ChunkReader:
    """Reads the next chunk of what `incremental` has to read, and makes records of those that come through."""

    def __init__(
        self, settings: PostgresSettings, context: SourceContext, catalog: Catalog, incremental: Incremental
    ) -> None:
        self._settings = settings
        self._context = context
        self._catalog = catalog
        self._incremental = incremental
        self._events: dict[str, TableEvents] = {}
        self._done = 0

    def read_next(self) -> None:
        """Put two marks into the stream, and read in between. A table that is gone or has no key is left out."""
        incremental = self._incremental
        name = incremental.tables[0]
        table = next((each for each in self._catalog.tables() if each.full_name == name), None)
        events = self._catalog.describe(self._catalog.relation(table)) if table is not None else None
        if table is None or events is None or not events.key:
            why = "has no primary key" if events is not None else "is not there"
            self._context.log.warning("table %s %s and is not read again", name, why)
            incremental.signal("stop-snapshot", f'{{"data-collections": ["{name}"]}}', [])
            return
        if self._events.get(name) is None or incremental.after is None:
            self._done = 0
        self._events[name] = events
        number = incremental.new_id()
        user = f"ottla {self._context.connector} incremental"
        with closing(connect(self._settings, user)) as connection, explained(f"reading a chunk of table {name}"):
            with connection.cursor() as cursor:
                oldest, following, _ = _snapshot(cursor)
            if not incremental.may_begin(oldest, following):
                return
            _emit(connection, f"{number} low")
            incremental.begin_chunk(self._read(connection, table, events, number))
            _emit(connection, f"{number} high")

    def records(self, chunk: Chunk, now_ns: int) -> list[SourceRecord]:
        """What is left of a chunk at its second mark, of op r."""
        settings, events = self._settings, self._events[chunk.table]
        block = source_block(settings.topic_prefix, settings.database_dbname, now_ns // 1000, None, None)
        schema, _, table = chunk.table.partition(".")
        block |= {"schema": schema, "table": table, "snapshot": "incremental"}
        self._done += len(chunk.rows)
        done = self._done
        self._context.progress(f"incremental snapshot of {chunk.table}", done, done if chunk.end else None)
        return [events.created(values, block, now_ns, READ) for values in chunk.rows.values()]

    def _read(self, connection: PostgresConnection, table: FoundTable, events: TableEvents, number: str) -> Chunk:
        names = [column.name for column in self._catalog.relation(table).columns]
        key = [column.name for column in events.key]
        at = [names.index(name) for name in key]
        incremental, limit = self._incremental, self._settings.incremental_snapshot_chunk_size
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True, autocommit=False)
        with connection.cursor() as cursor:
            as_text(cursor)
            oldest, unseen_from, in_progress = _snapshot(cursor)
            keys = sql.SQL(", ").join(map(sql.Identifier, key))
            source = sql.Identifier(table.schema, table.name)
            if incremental.until is None:
                ordered = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in key)
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
        return Chunk(
            number,
            table.full_name,
            by_key,
            end=len(rows) < limit,
            last=next(reversed(by_key), incremental.after),
            oldest=oldest,
            unseen_from=unseen_from,
            in_progress=in_progress,
        )


def _emit(connection: PostgresConnection, mark: str) -> None:
    """A mark in a transaction of its own: it stands in the stream where that commits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_logical_emit_message(true, %s, %s)", (PREFIX, mark))


def _snapshot(cursor: Any) -> tuple[int, int, frozenset[int]]:
    """The oldest transaction that is open, the next one, and those open in between; as the stream numbers them."""
    cursor.execute("SELECT pg_current_snapshot()::text")
    oldest, following, in_progress = cursor.fetchone()[0].split(":")
    open_ones = frozenset(int(each) & 0xFFFFFFFF for each in in_progress.split(",") if each)
    return int(oldest) & 0xFFFFFFFF, int(following) & 0xFFFFFFFF, open_ones


def _literals(key: Key) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Literal, key))
