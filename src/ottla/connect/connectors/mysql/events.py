"""Events of the binlog, as the library has them, told to `Changes`."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pymysqlreplication.event import (
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from ottla.connect.api import ConnectError, Progress, SourceRecord
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.changes import Changes, RowChange

EVENTS: Final = [
    DeleteRowsEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XAPrepareEvent,
    XidEvent,
]
"""What has to be handed on by the library."""
_STANDALONE: Final = 1
"""Flag of a GTID whose statement is a transaction by itself (a DDL)."""
_COMMENTS: Final = re.compile(r"(?:\s|/\*(?!!).*?\*/|(?:#|--\s).*?(?:\n|$))*", re.DOTALL)
_CHANGES_ROWS: Final = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD\s+DATA)\b", re.IGNORECASE)
_UNREADABLE: Final[Mapping[int, str]] = {
    39: "a part of a JSON document: SET GLOBAL binlog_row_value_options = ''",
    40: "a compressed transaction: SET GLOBAL binlog_transaction_compression = OFF",
    **dict.fromkeys(range(165, 172), "compressed events: SET GLOBAL log_bin_compress = OFF"),
}
"""Kinds of events with rows that the library cannot read: to pass them over would be to lose changes."""
_ADVICE: Final = "then delete the connector's offsets for a new snapshot, and restart it"


_read_date: Final = RowsEvent._RowsEvent__read_date


def _date_or_none(event: Any) -> Any:
    """A date, or None for 30 February, as the library itself has it of a DATETIME; of a DATE it raises."""
    try:
        return _read_date(event)
    except ValueError:
        return None


RowsEvent._RowsEvent__read_date = _date_or_none


class EventTaker:
    """Takes one event after the other. `tables`: the stream's, by the ids in events."""

    def __init__(self, tables: Mapping[int, Any], changes: Changes, catalog: Catalog) -> None:
        self._tables = tables
        self._changes = changes
        self._catalog = catalog

    def take(self, event: Any, batch: list[SourceRecord | Progress]) -> None:
        """Put what an event means at the end of `batch`. Raises ConnectError for one that cannot be read."""
        changes = self._changes
        if isinstance(event, RotateEvent):
            changes.rotated(event.next_binlog, event.position)
        elif isinstance(event, MariadbGtidEvent):
            changes.numbered(event.gtid)
            if not event.flags & _STANDALONE:
                changes.began(event.timestamp, batch)
        elif isinstance(event, GtidEvent):
            changes.numbered(event.gtid)
        elif isinstance(event, XidEvent | XAPrepareEvent):
            changes.committed(event.packet.log_pos, event.timestamp, batch)
        elif isinstance(event, QueryEvent):
            self._statement(event, batch)
        elif isinstance(event, NotImplementedEvent):
            unreadable = _UNREADABLE.get(event.packet.event_type)
            if unreadable is not None:
                raise ConnectError(f"the binlog has {unreadable}; {_ADVICE}")
        else:
            changes.change(self._row_change(event), event.packet.log_pos, batch)

    def _statement(self, event: Any, batch: list[SourceRecord | Progress]) -> None:
        changes, pos = self._changes, event.packet.log_pos
        statement = _COMMENTS.sub("", event.query, count=1)
        words = statement[:40].upper().split()
        match words:
            case ["BEGIN", *_] | ["XA", "START" | "BEGIN", *_]:
                changes.began(event.timestamp, batch)
            case ["SAVEPOINT", *_] | ["RELEASE", *_] | ["ROLLBACK", "TO", *_] | ["XA", "END", *_]:
                pass
            case ["COMMIT" | "ROLLBACK", *_] | ["XA", "COMMIT" | "ROLLBACK", *_]:
                changes.committed(pos, event.timestamp, batch)
            case _:
                if _CHANGES_ROWS.match(statement):
                    self._check(statement)
                else:
                    changes.restructured(statement)
                changes.stated(pos, batch)

    def _check(self, statement: str) -> None:
        """Raises ConnectError if rows of a captured table may have been changed by a statement that stands for them."""
        for database, table, _ in self._catalog.tables():
            if re.search(rf"\b{re.escape(table)}\b", statement, re.IGNORECASE):
                raise ConnectError(
                    f"the binlog has a statement that changed {database}.{table} in place of its rows "
                    f"({statement[:40]} ...), because a session had another binlog_format: SET GLOBAL binlog_format = "
                    f"'ROW', have no session change it, {_ADVICE}"
                )

    def _row_change(self, event: Any) -> RowChange:
        columns = self._tables[event.table_id].columns
        found: list[tuple[list[Any] | None, list[Any] | None]] = []
        for row in event.rows:
            if isinstance(event, WriteRowsEvent):
                found.append((None, list(row["values"].values())))
            elif isinstance(event, DeleteRowsEvent):
                found.append((list(row["values"].values()), None))
            else:
                found.append((list(row["before_values"].values()), list(row["after_values"].values())))
        names, packet = tuple(column.name for column in columns), event.packet
        key = tuple(column.name for column in columns if column.is_primary)
        return RowChange(
            event.schema,
            event.table,
            names,
            key,
            found,
            event.timestamp,
            packet.server_id,
            packet.log_pos - packet.event_size,
        )
