"""Signals from a table, as logical replication brings them, and the incremental snapshots that they start."""

import uuid
from collections.abc import Callable

from ottla.connect.api import ConnectError, Position, SourceContext, SourceRecord
from ottla.connect.connectors.capture.signals import TableSignals
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.chunks import PostgresChunks, PostgresTable
from ottla.connect.connectors.postgres.decoding.changes import RowChange
from ottla.connect.connectors.postgres.decoding.incremental import PREFIX, PostgresIncremental
from ottla.connect.connectors.postgres.decoding.pgoutput import (
    Delete,
    Insert,
    LogicalMessage,
    Relation,
    Truncate,
    Update,
)
from ottla.connect.connectors.postgres.settings import PostgresSettings


class Signals(TableSignals[PostgresTable]):
    """Listens to the stream for signals, changes and marks. `position`: where the stream was started."""

    _incremental: PostgresIncremental

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        catalog: Catalog,
        position: Position,
        now_ns: Callable[[], int],
    ) -> None:
        incremental = PostgresIncremental(lambda: uuid.uuid4().hex, position.get("incremental"))
        reader = PostgresChunks(settings, context, catalog, incremental)
        super().__init__(context, incremental, reader, lambda: [each.full_name for each in catalog.published()], now_ns)
        self.table = settings.signal_data_collection
        self._publication = settings.publication_name
        self._catalog = catalog
        self._row_keys: dict[int, tuple[Relation, list[int]]] = {}
        """For each table, its relation, and the columns that identify rows."""

    def check(self) -> None:
        """Raises ConnectError if the signal table is not there or not published."""
        name = self.table
        if not any(each.full_name == name for each in self._catalog.published(and_signals=True)):
            raise ConnectError(
                f"signal.data.collection {name} is no table of publication {self._publication}: "
                f"CREATE TABLE {name} (id text PRIMARY KEY, type text NOT NULL, data text), and publish it"
            )

    def changed(self, relation: Relation, change: RowChange | Truncate, xid: int | None) -> None:
        """A row changed, or all are gone; also of the signal table."""
        name = f"{relation.schema}.{relation.table}"
        if name == self.table:
            if isinstance(change, Insert):
                row = {column.name: value for column, value in zip(relation.columns, change.new, strict=True)}
                self.signal(row)
        elif isinstance(change, Truncate):
            self._incremental.truncated(name)
        elif self._incremental.tables:
            rows = [] if isinstance(change, Delete) else [change.new]
            if isinstance(change, Update | Delete) and change.old is not None:
                rows.append(change.old)
            at = self._row_key(relation)
            keys = [tuple([row[index] for index in at]) for row in rows]
            self._incremental.changed_by(xid, name, keys)

    def marked(self, message: LogicalMessage) -> list[SourceRecord]:
        """A logical message; records of a chunk if it is the mark of its end."""
        if message.prefix != PREFIX:
            return []
        number = self._incremental.marked(message.content.decode())
        return self.closed(number) if number is not None else []

    def _row_key(self, relation: Relation) -> list[int]:
        known = self._row_keys.get(relation.oid)
        if known is None or known[0] is not relation:
            names = [column.name for column in relation.columns]
            at = [names.index(name) for name in self._catalog.row_key(relation)]
            known = self._row_keys[relation.oid] = (relation, at)
        return known[1]
