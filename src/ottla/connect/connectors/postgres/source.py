"""The connector: a snapshot, then the changes after it, without a gap and without doing one twice."""

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, ClassVar, Final

import psycopg2
from psycopg2.extras import REPLICATION_LOGICAL

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
from ottla.connect.connectors.capture.envelope import changed_at, heartbeat
from ottla.connect.connectors.capture.snapshots import nothing_fits
from ottla.connect.connectors.capture.transactions import Transactions
from ottla.connect.connectors.postgres import slot
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.decoding.changes import SOURCE, Changes
from ottla.connect.connectors.postgres.decoding.pgoutput import UndecodableError, decode
from ottla.connect.connectors.postgres.messages import Messages
from ottla.connect.connectors.postgres.session import SYSTEM_CERTIFICATES, connect, explained, lsn_text, rows
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.connectors.postgres.signals import Signals
from ottla.connect.connectors.postgres.snapshot import Snapshot

_WAIT_S: Final = 0.5
_LINGER_S: Final = 0.01
"""How long to wait for more records, before the runtime learns that there are none."""
_LOOK_EVERY_S: Final = 10.0
_CONFIRM_EVERY_S: Final = 1.0
_GATHER_S: Final = 0.002
"""Time for the server to send more when something has come: it sends each change by itself, and waking costs both."""
_SAY_EVERY_S: Final = 10.0
_OWN_FEEDBACK_EVERY_S: Final = 3600
_VERSION_WITH_MESSAGES: Final = 140_000
_MB: Final = 1 << 20


class PostgresSource(Source[PostgresSettings]):
    """Changes of tables of a PostgreSQL database, in Debezium's envelope, by logical replication (pgoutput).

    Each change comes once and in the order of commits. Tables are read first (`snapshot.mode`), as of the moment from
    which the replication slot keeps all changes. One task, for a slot has one reader.
    """

    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.connector.postgresql.PostgresConnector",)

    def __init__(self, settings: PostgresSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._now_ns: Callable[[], int] = time.time_ns
        self._stream: Any = None
        self._confirmed = 0
        self._told = 0
        self._last_start = 0
        """Where the stream has the last message that came."""
        self._told_at = 0.0
        self._has_warned = False

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
            if start is None:
                _check_tables(settings, catalog)
                yield from self._snapshot(connection, catalog, system)
                if settings.snapshot_mode == "initial_only":
                    return
                yield None  # its last rows need not wait for the stream
                start = {"lsn": self._snapshot_lsn}
            yield from self._changes(connection, catalog, {**start, **system.identity})

    def committed(self, part: Part, position: Position) -> None:
        """Everything before `lsn` is in the log: the server may forget it."""
        if "snapshot" in position or position["lsn"] <= self._confirmed:
            return
        self._confirmed = position["lsn"]
        self._tell()

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

    def _snapshot(self, connection: Any, catalog: Catalog, system: slot.System) -> Iterator[Yielded]:
        """Read the tables. Where the slot existed before, a temporary one fixes the moment."""
        settings = self.settings
        permanent = slot.state(connection, settings) is None and settings.snapshot_mode != "initial_only"
        name = settings.slot_name if permanent else f"{settings.slot_name[:54]}_snapshot"
        with closing(self._replication()) as replication:
            lsn, exported = slot.create(replication, name, temporary=not permanent)
            self._snapshot_lsn = lsn
            snapshot = Snapshot(settings, self.context, catalog, exported, lsn, system.identity, self._now_ns)
            yield from snapshot.read(catalog.published())
        yield Progress(position={"lsn": lsn, **system.identity})

    def _changes(self, connection: Any, catalog: Catalog, start: Position) -> Iterator[Yielded]:
        settings = self.settings
        signals = (
            Signals(settings, self.context, catalog, start, self._now_ns) if settings.signal_data_collection else None
        )
        has_messages = connection.server_version >= _VERSION_WITH_MESSAGES
        changes = Changes(
            settings.topic_prefix,
            settings.database_dbname,
            start,
            catalog.describe,
            self._now_ns,
            frozenset(settings.skipped_operations),
            transactions=Transactions(settings.transaction_topic) if settings.provide_transaction_metadata else None,
            xmin=slot.Xmin(connection, settings.slot_name, settings.xmin_fetch_interval_ms),
            messages=Messages(settings, SOURCE) if has_messages else None,
            listened_to=settings.signal_data_collection,
            on_change=signals.changed if signals is not None else None,
            on_message=signals.marked if signals is not None else None,
            more_position=signals.position if signals is not None else None,
            reject=self.context.reject,
        )
        options = {"proto_version": "1", "publication_names": settings.publication_name}
        if signals is not None:
            signals.check()
        if has_messages or signals is not None:
            options["messages"] = "true"
        replication = self._replication()
        try:
            self._stream = replication.cursor()
            with explained(f"reading replication slot {settings.slot_name}"):
                self._stream.start_replication(
                    slot_name=settings.slot_name,
                    slot_type=REPLICATION_LOGICAL,
                    start_lsn=start["lsn"],
                    decode=False,
                    options=options,
                    # psycopg2 would say by itself, before a position is stored, what keepalives say: _tell does it
                    status_interval=_OWN_FEEDBACK_EVERY_S,
                )
                self._last_start, self._told, self._told_at = 0, start["lsn"], time.monotonic()
                self._confirmed = max(self._confirmed, start["lsn"])
                if "transaction" not in start:  # amid one the slot may be beyond, and would be moved back
                    self._stream.send_feedback(write_lsn=self._told, flush_lsn=self._told, force=True)
            yield from self._follow(connection, catalog, changes, signals)
        finally:
            self._stream = None
            with suppress(psycopg2.Error):
                replication.close()
            if settings.slot_drop_on_stop:
                slot.drop(connection, settings.slot_name)

    def _follow(
        self, connection: Any, catalog: Catalog, changes: Changes, signals: Signals | None
    ) -> Iterator[Yielded]:
        """Batch by batch, with what has to be done now and then in between."""
        beat_every_s = self.settings.heartbeat_interval_ms / 1000
        look_at = beat_at = time.monotonic()
        wait_s = _WAIT_S
        while True:
            batch: list[SourceRecord | Progress] = []
            broken = self._fill(batch, changes, wait_s)
            wait_s = _LINGER_S if batch else _WAIT_S
            now = time.monotonic()
            if beat_every_s and now >= beat_at and not changes.in_transaction and broken is None:
                beat_at = now + beat_every_s
                batch.append(self._beat(connection, changes))
            if now >= look_at and broken is None:
                look_at = now + _LOOK_EVERY_S
                self._guard(connection, catalog)
            if not batch:
                progress = changes.caught_up(self._stream.wal_end)
                if progress is not None:
                    batch.append(progress)
            self._tell()
            yield batch or None
            if broken is not None:
                raise broken
            if signals is not None and not changes.in_transaction:
                signals.go_on()

    def _fill(self, batch: list[SourceRecord | Progress], changes: Changes, wait_s: float) -> Retriable | None:
        """Add what has arrived, up to `max.batch.size` records; wait so long for the first of it.

        It returns after half a second also among messages without records, so that the runtime can do its part.

        Returns the reason why the stream has ended: earlier records are good, and a stopping server may have been sent
        the confirmation of all of them.
        """
        stream, most, take = self._stream, self.settings.max_batch_size, changes.take
        now = time.monotonic()
        until, end = now + wait_s, now + _WAIT_S
        gathered = False
        try:
            with self._reading():
                while len(batch) < most:
                    message = stream.read_message()
                    if message is not None:
                        self._last_start = message.data_start
                        take(decode(message.payload), self._last_start, batch)
                        if time.monotonic() >= end:
                            break
                        continue
                    if batch:
                        if gathered:
                            break
                        time.sleep(_GATHER_S)
                        gathered = True
                        continue
                    # keepalives wake `select` and are no messages: without an end they would keep this up for ever
                    left = until - time.monotonic()
                    if left <= 0 or not select.select([stream], [], [], left)[0]:
                        break
        except Retriable as broken:
            return broken
        return None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with explained(f"reading replication slot {self.settings.slot_name}"):
                yield
        except UndecodableError as error:
            raise ConnectError(f"replication slot {self.settings.slot_name}: {error}") from error

    def _beat(self, connection: Any, changes: Changes) -> SourceRecord:
        settings = self.settings
        if settings.heartbeat_action_query:
            rows(connection, settings.heartbeat_action_query)
        topic = f"{settings.topic_heartbeat_prefix}.{settings.topic_prefix}"
        return heartbeat(topic, settings.topic_prefix, self._now_ns() // 1_000_000, changes.position())

    def _tell(self) -> None:
        """Confirm the flushed position to the server, once a second at most: it answers each with a look at its slot.

        psycopg2 adds the end of the last keepalive if everything before had been confirmed. So it is made
        to send only while that end is stored as a position, too, or while more has come than was confirmed. That
        happens
        often enough for the server not to request a reply itself, which psycopg2 would answer at once.
        """
        since_s = time.monotonic() - self._told_at
        stream = self._stream
        if stream is None or since_s < (_SAY_EVERY_S if self._told == self._confirmed else _CONFIRM_EVERY_S):
            return
        if stream.wal_end > self._confirmed and self._told >= self._last_start:
            return
        self._told, self._told_at = self._confirmed, time.monotonic()
        with explained("confirming the flushed position"):
            stream.send_feedback(write_lsn=self._told, flush_lsn=self._told, force=True)

    def _guard(self, connection: Any, catalog: Catalog) -> None:
        """Look at the WAL that the slot holds back, and for tables that are not published.

        Raises ConnectError after dropping a slot that was to be dropped.
        """
        settings = self.settings
        found = slot.state(connection, settings)
        if found is None:
            return
        if settings.slot_lag_drop_bytes and found.held_back > settings.slot_lag_drop_bytes:
            self._stream.connection.close()
            slot.drop(connection, settings.slot_name)
            raise ConnectError(
                f"slot {settings.slot_name} held back {found.held_back // _MB} MB of WAL, more than "
                f"slot.lag.drop.bytes={settings.slot_lag_drop_bytes}, and was dropped: delete the connector's offsets "
                "and restart it for a new snapshot"
            )
        had_warned, sentence = self._has_warned, None
        missing = slot.unpublished(connection, catalog)
        if found.held_back > settings.slot_lag_warn_bytes or found.status in ("extended", "unreserved"):
            sentence = (
                f"slot {settings.slot_name} holds back {found.held_back // _MB} MB of the server's WAL "
                f"({found.status}): its changes are not taken as fast as they come, or a transaction is open for long"
            )
        elif missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            sentence = (
                f"table {missing[0]}{more} is to be captured and is not in publication {settings.publication_name}, so "
                "that its changes do not come: ALTER PUBLICATION ... ADD TABLE, or for one that has partitions "
                "capture these, or set publish.via.partition.root=true and have the publication made anew"
            )
        self._has_warned = sentence is not None
        if sentence is not None or had_warned:  # a warning from elsewhere stays
            self.context.warn(sentence)


def _check_tables(settings: PostgresSettings, catalog: Catalog) -> None:
    """Raises ConfigError if nothing is captured, or a table named in full is not there."""
    if not catalog.tables() and settings.table_include_list:
        where = f"database {settings.database_dbname}"
        raise nothing_fits(settings.table_include_list, catalog.all_names(), where, "schema.table")
