"""The connector: a snapshot, then the changes after it, without a gap and without doing one twice."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, ClassVar, Final

import psycopg2

from ottla.connect.api import (
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
from ottla.connect.connectors.capture.changes import Rules
from ottla.connect.connectors.capture.envelope import changed_at
from ottla.connect.connectors.capture.snapshots import nothing_fits
from ottla.connect.connectors.capture.streaming import Heartbeats, follow
from ottla.connect.connectors.postgres import slot
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.decoding.changes import SOURCE, Changes, Origin
from ottla.connect.connectors.postgres.messages import Messages
from ottla.connect.connectors.postgres.session import SYSTEM_CERTIFICATES, connect, lsn_text, rows
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.signals import Signals
from ottla.connect.connectors.postgres.snapshot import Snapshot
from ottla.connect.connectors.postgres.stream import Feedback, ReplicationStream, SlotWatch

_VERSION_WITH_MESSAGES: Final = 140_000


class PostgresSource(Source[PostgresSettings]):
    """Changes of tables of a PostgreSQL database, in Debezium's envelope, by logical replication (pgoutput).

    Each change comes once and in the order of commits. Tables are read first (`snapshot.mode`), as of the moment from
    which the replication slot keeps all changes. One task, for a slot has one reader.
    """

    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.connector.postgresql.PostgresConnector",)

    def __init__(self, settings: PostgresSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._now_ns: Callable[[], int] = time.time_ns
        self._feedback = Feedback()

    @classmethod
    def local_paths(cls, settings: PostgresSettings) -> Mapping[str, Sequence[str]]:
        """The certificates that the server's is checked against."""
        path = settings.database_sslrootcert
        return {"database.sslrootcert": [path]} if path not in ("", SYSTEM_CERTIFICATES) else {}

    @classmethod
    def check(cls, settings: PostgresSettings, context: Context) -> None:
        """The server, its settings, the role's rights and the names in `table.include.list`."""
        with closing(connect(settings, "ottla check")) as connection:
            slot.check_server(connection)
            catalog = Catalog(connection, settings)
            _check_tables(settings, catalog)
            slot.state(connection, settings)
        connect(settings, "ottla check", replication=True).close()

    @classmethod
    def lag(cls, settings: PostgresSettings, part: Part, position: Position, context: Context) -> SourceLag | None:
        """WAL between the position and the server's end."""
        if part != {"server": settings.topic_prefix} or "snapshot" in position:
            return None
        with closing(connect(settings, "ottla lag")) as connection:
            end = slot.end_of_wal(connection, settings, position)
        return SourceLag(lsn_text(position["lsn"]), lsn_text(end), end - position["lsn"])

    def changed_at(self, record: SourceRecord, now_ms: int) -> int | None:
        """When it was committed."""
        return changed_at(record)

    def part(self) -> Part:
        return {"server": self.settings.topic_prefix}

    def read(self, position: Position | None) -> Iterator[Yielded]:
        settings = self.settings
        with ExitStack() as open_ones:
            connection = open_ones.enter_context(closing(connect(settings, f"ottla {self.context.connector}")))
            slot.check_server(connection)
            if settings.snapshot_mode == "initial_only" and position is not None and "snapshot" not in position:
                return  # it is taken
            catalog = Catalog(connection, settings)
            if position is None or "snapshot" in position:
                _check_tables(settings, catalog)
            elif not catalog.tables():
                self.context.warn("no table is captured that exists now: look at table.include.list")
            slot.make_publication(connection, catalog, settings)
            system = slot.identify(self._replication, position)
            start = self._go_on_from(connection, system, position)
            rules = Rules.of(settings, self.context, self._now_ns)
            if start is None:
                _check_tables(settings, catalog)
                start = yield from self._snapshot(connection, catalog, system, rules)
                if settings.snapshot_mode == "initial_only":
                    return
                yield None  # its last rows need not wait for the stream
            yield from self._changes(connection, catalog, {**start, **system.identity}, rules)

    def committed(self, part: Part, position: Position) -> None:
        """Everything before `lsn` is in the log: the server may forget it."""
        if "snapshot" not in position:
            self._feedback.confirm(position["lsn"])

    def _replication(self) -> Any:
        return connect(self.settings, f"ottla {self.context.connector}", replication=True)

    def _go_on_from(self, connection: Any, system: slot.System, position: Position | None) -> Position | None:
        """Where to go on streaming, or None: after a snapshot.

        `when_needed` drops a slot that is no longer of use. Raises Retriable if this cannot be found out now: that is
        no reason for a new snapshot.
        """
        settings = self.settings
        found = slot.state(connection, settings)
        slot.check_free(found, settings)
        mode = settings.snapshot_mode
        if position is not None and "snapshot" not in position and mode != "always":
            try:
                slot.check_same(system, found, settings, position)
                slot.check_goes_on(found, settings, position)
            except Retriable:
                raise
            except ConnectError:
                if mode != "when_needed":
                    raise
                if found is not None:
                    slot.drop(connection, settings.slot_name)
            else:
                return position
        elif found is not None and found.status == "lost":
            if mode != "when_needed":
                slot.check_goes_on(found, settings, {"lsn": 0})
            slot.drop(connection, settings.slot_name)
        elif mode in ("no_data", "never"):
            if found is not None:
                return {"lsn": found.confirmed}
            with closing(self._replication()) as replication:
                return {"lsn": slot.create(replication, settings.slot_name, temporary=False)[0]}
        return None

    def _snapshot(
        self, connection: Any, catalog: Catalog, system: slot.System, rules: Rules
    ) -> Generator[Yielded, None, Position]:
        """Read the tables, and return the position of the changes after them.

        Where the slot existed before, a temporary one fixes the moment.
        """
        settings = self.settings
        permanent = slot.state(connection, settings) is None and settings.snapshot_mode != "initial_only"
        name = settings.slot_name if permanent else f"{settings.slot_name[:54]}_snapshot"
        with closing(self._replication()) as replication:
            lsn, exported = slot.create(replication, name, temporary=not permanent)
            start = {"lsn": lsn, **system.identity}
            snapshot = Snapshot(settings, self.context, catalog, exported, start, rules)
            yield from snapshot.read(catalog.published())
        yield Progress(position=start)
        return start

    def _changes(self, connection: Any, catalog: Catalog, start: Position, rules: Rules) -> Iterator[Yielded]:
        settings = self.settings
        signals = None
        if settings.signal_data_collection:
            signals = Signals(settings, self.context, catalog, start, self._now_ns)
            signals.check()
        has_messages = connection.server_version >= _VERSION_WITH_MESSAGES
        xmin = slot.Xmin(connection, settings.slot_name, settings.xmin_fetch_interval_ms)
        origin = Origin(settings.topic_prefix, settings.database_dbname, xmin)
        messages = Messages(settings, SOURCE) if has_messages else None
        changes = Changes(origin, start, catalog.describe, rules, signals, messages)
        options = {"proto_version": "1", "publication_names": settings.publication_name}
        if has_messages or signals is not None:
            options["messages"] = "true"
        replication = self._replication()
        try:
            watch = SlotWatch(settings, self.context, connection, catalog)
            stream = ReplicationStream(settings, replication, changes, watch, self._feedback)
            stream.start(start, options)
            heartbeats = Heartbeats(settings, partial(rows, connection), self._now_ns, time.monotonic())
            yield from follow(stream.read, changes, heartbeats, time.monotonic, signals)
        finally:
            self._feedback.close()
            with suppress(psycopg2.Error):
                replication.close()
            if settings.slot_drop_on_stop:
                slot.drop(connection, settings.slot_name)


def _check_tables(settings: PostgresSettings, catalog: Catalog) -> None:
    """Raises ConfigError if nothing is captured, or a table named in full is not there."""
    if not catalog.tables() and settings.table_include_list:
        where = f"database {settings.database_dbname}"
        raise nothing_fits(settings.table_include_list, catalog.all_names(), where, "schema.table")
