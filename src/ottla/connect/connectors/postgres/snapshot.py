"""All rows of the captured tables as of one moment: the one from which the replication slot has every change."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg2.extensions
from psycopg2 import sql

from ottla.connect.api import Retriable, SourceContext, SourceRecord
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import TableEvents
from ottla.connect.connectors.capture.snapshots import SnapshotRows, SnapshotTable
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.decoding.changes import source_block
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation
from ottla.connect.connectors.postgres.session import connect, explained
from ottla.connect.connectors.postgres.settings import PostgresSettings

_REWRITTEN: Final = """
    SELECT c.oid::regclass::text FROM pg_class c
    WHERE c.relkind = 'r' AND c.relfilenode <> pg_relation_filenode(c.oid) AND c.oid IN (
        SELECT coalesce(p.relid, t) FROM unnest(%s::oid[]) t LEFT JOIN LATERAL pg_partition_tree(t::regclass) p ON true)
"""
"""pg_class is seen as of the snapshot, pg_relation_filenode looks at the table as it is now."""


def as_text(cursor: Any) -> None:
    """Have a cursor return every value as the server wrote it, whatever its type."""
    oids = tuple(psycopg2.extensions.string_types)
    psycopg2.extensions.register_type(psycopg2.extensions.new_type(oids, "TEXT", lambda value, _: value), cursor)


def rows_of(table: FoundTable) -> sql.Composed:
    """A table, in FROM: without the rows of tables that inherit from it, which are captured as rows of theirs."""
    return sql.SQL("{}{}").format(
        sql.SQL("" if table.partitioned else "ONLY "), sql.Identifier(table.schema, table.name)
    )


def select(table: FoundTable, names: list[str]) -> sql.Composed:
    """Those columns of all rows."""
    columns = sql.SQL(", ").join(map(sql.Identifier, names)) if names else sql.SQL("")
    return sql.SQL("SELECT {} FROM {}").format(columns, rows_of(table))


class Snapshot:
    """Reads tables one after the other.

    `name`: of the exported snapshot; `start`: the position of the changes after it, with the identity of the system.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        catalog: Catalog,
        name: str,
        start: Mapping[str, Any],
        rules: Rules,
    ) -> None:
        self._settings = settings
        self._context = context
        self._catalog = catalog
        self._name = name
        self._start = start
        self._rules = rules

    def read(self, tables: list[FoundTable]) -> Iterator[list[SourceRecord]]:
        """Batches of records of op r.

        Their positions say that the snapshot has to start again; the very last's is that of the changes after it.
        Raises Retriable if a table was rewritten since the moment of the snapshot, at which it would be seen as empty.
        """
        position = {"snapshot": True, "lsn": self._start["lsn"]}
        rows = SnapshotRows(self._context, self._rules, self._settings.max_batch_size, position)
        connection = connect(self._settings, f"ottla {self._context.connector} snapshot")
        try:
            with explained("taking the snapshot"):
                connection.set_session(isolation_level="REPEATABLE READ", readonly=True, autocommit=False)
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION SNAPSHOT %s", (self._name,))
                    for table in tables:  # so that no column changes before its table's turn
                        cursor.execute(
                            sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(
                                sql.Identifier(table.schema, table.name)
                            )
                        )
                    cursor.execute(_REWRITTEN, ([table.oid for table in tables],))
                    rewritten = cursor.fetchone()
            if rewritten is not None:
                raise Retriable(f"table {rewritten[0]} was rewritten just as the snapshot began, which is begun anew")
            described = [self._described(table) for table in tables]  # a key that is refused is so before any record
            last = yield from rows.batches(self._table(connection, *each) for each in filter(None, described))
        finally:
            connection.close()
        if last is not None:  # only now: a concurrent change of the table has waited long enough
            last.position = self._start
            yield [last]

    def _described(self, table: FoundTable) -> tuple[FoundTable, Relation, TableEvents] | None:
        relation = self._catalog.relation(table)
        events = self._catalog.describe(relation)
        return None if events is None else (table, relation, events)

    def _table(self, connection: Any, table: FoundTable, relation: Relation, events: TableEvents) -> SnapshotTable:
        settings, now_us = self._settings, self._rules.now_ns() // 1000
        block = source_block(settings.topic_prefix, settings.database_dbname, now_us, None, self._start["lsn"])
        names = [column.name for column in relation.columns]
        rows = self._rows(connection, table, names)
        block |= {"schema": table.schema, "table": table.name}
        return SnapshotTable(table.full_name, events, block, rows, table.rows_about)

    def _rows(self, connection: Any, table: FoundTable, names: list[str]) -> Iterator[tuple[Any, ...]]:
        with explained(f"reading table {table.full_name}"), connection.cursor("snapshot") as cursor:
            cursor.itersize = self._settings.snapshot_fetch_size
            as_text(cursor)
            cursor.execute(select(table, names))
            yield from cursor
