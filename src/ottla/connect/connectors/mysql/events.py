"""Events of the binlog, as the library has them, handed to `Changes`."""

import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

from pymysqlreplication import exceptions
from pymysqlreplication.event import (
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)

from ottla.connect.api import ConnectError, Progress, SourceRecord
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.decoding.changes import Changes, RowChange
from ottla.connect.connectors.mysql.decoding.table_map import ABSENT, RowPair, TableMap, rows, table_id, table_map
from ottla.connect.connectors.mysql.library import RowsEvent, TableMapEvent

EVENTS: Final = [
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    TableMapEvent,
    XAPrepareEvent,
    XidEvent,
]
"""Events that the library has to pass on."""
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
ADVICE: Final = "delete the connector's offsets for a new snapshot, and restart it"

UNKNOWN: Final = (
    ValueError,
    LookupError,
    struct.error,
    NotImplementedError,
    exceptions.MalformedBinLogEvent,
    exceptions.StatusVariableMismatch,
)
"""What the library raises for an event that it does not know."""
_BROKEN: Final = (ValueError, LookupError, struct.error, zlib.error, OverflowError)
"""What reading bytes raises that are not what they should be."""


class EventTaker:
    """Takes one event after the other. `charsets`: by the numbers of collations."""

    def __init__(self, changes: Changes, catalog: Catalog, charsets: Mapping[int, str]) -> None:
        self._changes = changes
        self._catalog = catalog
        self._charsets = charsets
        self._version: tuple[int, ...] = ()
        """The server's version when it wrote the file."""
        self._tables: dict[int, TableMap] = {}
        """By the ids in events, which are a file's."""
        self._known: dict[bytes, TableMap] = {}
        """By what describes them, which comes again before each change."""

    def take(self, event: Any, batch: list[SourceRecord | Progress]) -> None:
        """Put what an event means at the end of `batch`. Raises ConnectError for one that cannot be read."""
        changes = self._changes
        if isinstance(event, TableMapEvent):
            self._table(event)
        elif isinstance(event, RowsEvent):
            changes.change(self._row_change(event), event.packet.log_pos, batch)
        elif isinstance(event, RotateEvent):
            self._tables.clear()
            self._known.clear()
            changes.rotated(event.next_binlog, event.position)
        elif isinstance(event, FormatDescriptionEvent):
            self._version = event.mysql_version
            changes.file_began(event.timestamp)
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
                raise ConnectError(f"the binlog has {unreadable}; then {ADVICE}")

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
                    f"'ROW', have no session change it, then {ADVICE}"
                )

    def _table(self, event: TableMapEvent) -> None:
        said = event.body[6:]
        if said not in self._known:
            self._known[said] = table_map(event.body, self._charsets, self._version)
        self._tables[table_id(event.body)] = self._known[said]

    def _row_change(self, event: RowsEvent) -> RowChange:
        packet = event.packet
        pos = packet.log_pos - packet.event_size
        table = self._tables.get(table_id(event.body))
        if table is None:
            raise ConnectError(f"the rows before {packet.log_pos} in the binlog are of a table that was not described")
        return RowChange(table, self._rows(event, table, pos), event.timestamp, packet.server_id, pos)

    def _rows(self, event: RowsEvent, table: TableMap, pos: int) -> list[RowPair]:
        """None of an event that cannot be read, if it is of a table that is not captured."""
        name = f"{table.database}.{table.table}"
        try:
            if table.unreadable:
                raise ValueError(table.unreadable)
            found = rows(event.event_type, event.body, table)
        except _BROKEN as error:
            if not self._matters(table):
                return []
            raise ConnectError(
                f"rows of {name} at {pos} in the binlog cannot be read ({error}): leave the table out by "
                f"table.exclude.list, or {ADVICE}"
            ) from error
        if found and self._matters(table) and any(ABSENT in values for values in found[0] if values is not None):
            raise ConnectError(
                f"rows of {name} at {pos} in the binlog lack columns, because a session had another binlog_row_image: "
                f"SET GLOBAL binlog_row_image = 'FULL', have no session change it, then {ADVICE}"
            )
        return found

    def _matters(self, table: TableMap) -> bool:
        return self._catalog.has(table.database, table.table) or self._catalog.has_signals(table.database, table.table)
