"""Signals from a table of the database, and the incremental snapshots that they start."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.api import ConnectError, Position, SourceContext, SourceRecord
from ottla.connect.connectors.capture.envelope import TableEvents
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.changes import RowChange
from ottla.connect.connectors.postgres.chunks import ChunkReader
from ottla.connect.connectors.postgres.incremental import PREFIX, Incremental
from ottla.connect.connectors.postgres.pgoutput import Delete, Insert, LogicalMessage, Relation, Truncate, Update
from ottla.connect.connectors.postgres.settings import PostgresSettings


class Signals:
    """Listens to the stream for signals, changes and marks. `position`: where the stream was started."""

    def __init__(
        self,
        settings: PostgresSettings,
        context: SourceContext,
        catalog: Catalog,
        position: Position,
        now_ns: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._context = context
        self._catalog = catalog
        self._now_ns = now_ns
        self._incremental = Incremental.restored(position.get("incremental"), lambda: uuid.uuid4().hex)
        self._reader = ChunkReader(settings, context, catalog, self._incremental)

    def check(self) -> None:
        """Raises ConnectError if the signal table is not there or not published."""
        name = self._settings.signal_data_collection
        if not any(each.full_name == name for each in self._catalog.published(and_signals=True)):
            raise ConnectError(
                f"signal.data.collection {name} is no table of publication {self._settings.publication_name}: "
                f"CREATE TABLE {name} (id text PRIMARY KEY, type text NOT NULL, data text), and publish it"
            )

    def position(self) -> Mapping[str, Any]:
        """What a position has to say about the incremental snapshot."""
        state = self._incremental.state()
        return {"incremental": state} if state else {}

    def changed(self, relation: Relation, table: TableEvents, change: RowChange | Truncate, xid: int | None) -> bool:
        """A row changed, or all are gone; True for those of the signal table."""
        name = f"{relation.schema}.{relation.table}"
        if name == self._settings.signal_data_collection:
            if isinstance(change, Insert):
                self._signal({column.name: value for column, value in zip(relation.columns, change.new, strict=True)})
            return True
        if isinstance(change, Truncate):
            self._incremental.truncated(name)
        elif self._incremental.tables:
            rows = [] if isinstance(change, Delete) else [change.new]
            if isinstance(change, Update | Delete) and change.old is not None:
                rows.append(change.old)
            self._incremental.changed(xid, name, [tuple([row[each.index] for each in table.key]) for row in rows])
        return False

    def marked(self, message: LogicalMessage) -> list[SourceRecord]:
        """A logical message; records of a chunk if it is the mark of its end."""
        if message.prefix != PREFIX:
            return []
        chunk = self._incremental.marked(message.content.decode())
        return self._reader.records(chunk, self._now_ns()) if chunk is not None else []

    def go_on(self) -> None:
        """Read the next chunk, if there is one to read and none is waited for."""
        if self._incremental.tables and self._incremental.chunk is None:
            self._reader.read_next()

    def _signal(self, row: Mapping[str, Any]) -> None:
        known = [each.full_name for each in self._catalog.tables()]
        wrong = self._incremental.signal(str(row.get("type")), row.get("data"), known)
        if wrong is not None:
            self._context.log.warning("signal %s: %s", row.get("id"), wrong)
