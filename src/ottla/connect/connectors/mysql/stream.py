"""The stream of the binlog: its connections, and what comes by them."""

import ssl
import time
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import HeartbeatLogEvent, RotateEvent

from ottla.connect.api import ConnectError, Position, Retriable
from ottla.connect.connectors.capture.changes import Batch
from ottla.connect.connectors.capture.streaming import Arrived
from ottla.connect.connectors.mysql.decoding.changes import Changes
from ottla.connect.connectors.mysql.events import ADVICE, EVENTS, UNKNOWN, EventTaker
from ottla.connect.connectors.mysql.session import connection_settings, explained
from ottla.connect.connectors.mysql.settings import MysqlSettings

_BEAT_S: Final = 0.5
_BATCH_S: Final = 0.05
"""How long a batch is gathered that has something."""
_EMPTY_S: Final = 0.5
"""How long events without records are read: of tables that are not captured, or already processed."""


class Connections:
    """Two connections for each stream: a third would be the library's own try, from the start, after one broke."""

    def __init__(self) -> None:
        self._count = 0
        self._stream: Any = None

    def __call__(self, **options: Any) -> Any:
        """A connection of the driver, with the library's names of options. Raises Retriable for a third one."""
        self._count += 1
        if self._count > 2:
            raise Retriable("the server closed the connection on which its binlog was read")
        if "db" in options:  # the library's name for it, which the driver is about to forget
            options["database"] = options.pop("db")
            return pymysql.connect(**options)
        self._stream = pymysql.connect(**options)  # the stream's has no database
        return self._stream

    def more_came(self) -> bool:
        """Whether something can be read from the stream's connection at once."""
        sock, buffered = self._stream._sock, self._stream._rfile  # the driver has no public way
        sock.setblocking(False)
        try:
            return bool(buffered.peek(1))
        except ssl.SSLWantReadError:
            return False
        finally:
            sock.setblocking(True)


class BinlogStream:
    """Events of the binlog, in batches. stream: the library's, over `connections`."""

    def __init__(
        self, settings: MysqlSettings, stream: Any, connections: Connections, taker: EventTaker, changes: Changes
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._connections = connections
        self._taker = taker
        self._changes = changes

    def read(self) -> Arrived:
        """Waits a little for the first of it. Raises ConnectError if it is what cannot be read."""
        batch: Batch = []
        try:
            return Arrived(batch, at_end=self._fill(batch))
        except ConnectError as broken:
            if not batch:
                raise
            return Arrived(batch, broken=broken)

    def _fill(self, batch: Batch) -> bool:
        """Add what has arrived; returns whether nothing more has."""
        until = time.monotonic() + _EMPTY_S
        with explained("reading the binlog"):
            while len(batch) < self._settings.max_batch_size and time.monotonic() < until:
                event = self._next()
                if isinstance(event, HeartbeatLogEvent):
                    if self._connections.more_came():
                        continue  # MySQL sends one for each event that it passes over because its GTID is done
                    return True
                was_empty = not batch
                self._taker.take(event, batch)
                if was_empty and batch:
                    until = time.monotonic() + _BATCH_S
                if not batch or self._changes.in_transaction:
                    continue
                # after a file's end come events that are not handed on, and then perhaps nothing for long
                if isinstance(event, RotateEvent) or not self._connections.more_came():
                    return True
        return False

    def _next(self) -> Any:
        """The next event. Raises Retriable if the stream has ended, ConnectError for an event that is unknown."""
        stream = self._stream
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


def open_stream(settings: MysqlSettings, kind: str, start: Position, connections: Connections) -> Any:
    """The library's stream of what comes after the position. `kind`: mysql or mariadb."""
    by_gtid: dict[str, Any] = {"auto_position": start["gtids"]} if start.get("gtids") else {}
    by_place = {"log_file": start["file"], "log_pos": start["pos"], "resume_stream": True}
    return BinLogStreamReader(
        connection_settings=connection_settings(settings),
        server_id=settings.replica_id,
        blocking=True,
        slave_heartbeat=_BEAT_S,
        is_mariadb=kind == "mariadb",
        enable_logging=False,
        pymysql_wrapper=connections,
        only_events=EVENTS,
        filter_non_implemented_events=False,
        **(by_gtid or by_place),
    )
