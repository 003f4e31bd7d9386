"""All rows of the captured tables as of one moment: the one from which the replication slot has every change."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg2.extensions
from psycopg2 import sql

from ottla.connect.api import Retriable, SourceContext, SourceRecord
from ottla.connect.connectors.capture.envelope import READ, SourceBlock
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.changes import source_block
from ottla.connect.connectors.postgres.session import connect, explained
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.schema import Shared

_TELL_EVERY: Final = 10_000
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
    """Reads tables one after the other. `name`: of the exported snapshot; `lsn`: where the changes after it begin."""

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        catalog: Catalog,
        name: str,
        lsn: int,
        now_ns: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._context = context
        self._catalog = catalog
        self._name = name
        self._lsn = lsn
        self._now_ns = now_ns

    def read(self, tables: list[FoundTable]) -> Iterator[list[SourceRecord]]:
        """Batches of records of op r.

        Their positions say that the snapshot has to start again; the very last's is that of the changes after it.
        Raises Retriable if a table was rewritten since the moment of the snapshot, at which it would be seen as empty.
        """
        connection = connect(self._settings, f"ottla {self._context.connector} snapshot")
        last: SourceRecord | None = None
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
            for number, table in enumerate(tables):
                for batch in self._table(connection, table, first=number == 0):
                    if last is not None:
                        batch.insert(0, last)
                    last = batch.pop()
                    if batch:
                        yield batch
        finally:
            connection.close()
        if last is not None:  # only now: whoever wants to change a table has waited long enough
            _mark(last, "last")
            last.position = {"lsn": self._lsn}
            yield [last]

    def _table(self, connection: Any, table: FoundTable, *, first: bool) -> Iterator[list[SourceRecord]]:
        relation = self._catalog.relation(table)
        events = self._catalog.describe(relation)
        if events is None:
            return
        what = f"snapshot of {table.full_name}"
        position = {"snapshot": True, "lsn": self._lsn}
        now_us = self._now_ns() // 1000
        block = source_block(self._settings.topic_prefix, self._settings.database_dbname, now_us, None, self._lsn)
        block = Shared(block, schema=table.schema, table=table.name, snapshot="true")
        done = 0
        batch: list[SourceRecord] = []
        self._context.progress(what, 0, table.rows_about)
        for values in self._rows(connection, table, [column.name for column in relation.columns]):
            done += 1
            record = events.created(values, block, self._now_ns(), READ)
            record.position = position
            if done == 1:
                _mark(record, "first" if first else "first_in_data_collection")
            batch.append(record)
            if len(batch) > self._settings.max_batch_size:
                yield batch[:-1]
                batch = batch[-1:]
            if done % _TELL_EVERY == 0:
                self._context.progress(what, done, max(done, table.rows_about))
        if batch:
            if not first or done > 1:
                _mark(batch[-1], "last_in_data_collection")
            yield batch
        self._context.progress(what, done, done)

    def _rows(self, connection: Any, table: FoundTable, names: list[str]) -> Iterator[tuple[Any, ...]]:
        with explained(f"reading table {table.full_name}"), connection.cursor("snapshot") as cursor:
            cursor.itersize = self._settings.snapshot_fetch_size
            as_text(cursor)
            cursor.execute(select(table, names))
            yield from cursor


def _mark(record: SourceRecord, mark: str) -> None:
    """Say which of the snapshot's records this is; the block is shared until then."""
    block: SourceBlock = {**record.value["source"], "snapshot": mark}
    record.value["source"] = block
