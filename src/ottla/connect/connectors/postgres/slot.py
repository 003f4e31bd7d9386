"""The replication slot and its publication: made when needed, watched, and what is wrong with them in one sentence."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from psycopg2 import sql

from ottla.connect.api import ConnectError, Position, Retriable
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.session import PostgresConnection, explained, lsn_number, lsn_text, rows
from ottla.connect.connectors.postgres.settings import PostgresSettings

_TRIES: Final = 100
_MEMBERS: Final = """
    SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %s
"""
_PARENTS: Final = """
    SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relispartition
"""


@dataclass(frozen=True, slots=True)
class System:
    """A server's WAL. end: what it has of it. left_at: where it left the timeline of a position that was asked about,
    if that is another one and known to it."""

    identifier: str
    timeline: int
    end: int
    left_at: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the system, for positions in it."""
        return {"system": self.identifier, "timeline": self.timeline}


@dataclass(frozen=True, slots=True)
class SlotState:
    """held_back: bytes of WAL that the server keeps for the slot; confirmed: everything before is no longer sent."""

    confirmed: int
    held_back: int
    status: str
    active_pid: int | None


def check_server(connection: PostgresConnection) -> None:
    """Raises ConnectError if the server does not write what logical replication needs, Retriable if it is a standby.

    During a failover the address may briefly be that of a standby that is promoted later. A standby has no slot, and
    its WAL position may still change.
    """
    level, standby = rows(connection, "SELECT current_setting('wal_level'), pg_is_in_recovery()")[0]
    if standby:
        raise Retriable(
            f"PostgreSQL at {connection.info.host}:{connection.info.port} is a standby: its changes are read when it "
            "has been promoted, or connect to its primary"
        )
    if level != "logical":
        raise ConnectError(
            f"the server's wal_level is {level}: set wal_level = logical in its configuration and restart it"
        )


def state(connection: PostgresConnection, settings: PostgresSettings) -> SlotState | None:
    """The slot as it is, or None if there is none. Raises ConnectError if it is of another kind or database."""
    found = rows(
        connection,
        "SELECT plugin, database, confirmed_flush_lsn::text, "
        "coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, wal_status, active_pid "
        "FROM pg_replication_slots WHERE slot_name = %s",
        settings.slot_name,
    )
    if not found:
        return None
    plugin, database, confirmed, held_back, status, pid = found[0]
    if plugin != settings.plugin_name or database != settings.database_dbname:
        raise ConnectError(
            f"slot {settings.slot_name} is one of {plugin or 'physical replication'} for database {database}: "
            "choose another slot.name"
        )
    return SlotState(lsn_number(confirmed or "0/0"), held_back, status or "", pid)


class Xmin:
    """The oldest transaction whose rows of the catalog the server keeps for the slot, looked up every `every_ms`."""

    def __init__(self, connection: PostgresConnection, slot_name: str, every_ms: int) -> None:
        self._connection = connection
        self._slot_name = slot_name
        self._every_ms = every_ms
        self._last: int | None = None
        self._look_at = time.monotonic()

    def __call__(self) -> int | None:
        """As it was when it was last looked up; None if it is not to be, or there is no slot."""
        now = time.monotonic()
        if self._every_ms and (self._last is None or now >= self._look_at):
            self._look_at = now + self._every_ms / 1000
            found = rows(
                self._connection,
                "SELECT catalog_xmin::text::bigint FROM pg_replication_slots WHERE slot_name = %s",
                self._slot_name,
            )
            self._last = found[0][0] if found else None
        return self._last


def identify(connect: Callable[[], Any], position: Position | None) -> System:
    """The system that is there now, and what it knows of the timeline of a position.

    `connect` opens a connection of the replication protocol. Raises ConnectError, Retriable.
    """
    known = position.get("timeline") if position is not None else None
    with closing(connect()) as replication, explained("identifying the server"), replication.cursor() as cursor:
        cursor.execute("IDENTIFY_SYSTEM")
        identifier, timeline, end, _ = cursor.fetchone()
        left_at = None
        if known is not None and known < int(timeline):
            cursor.execute(f"TIMELINE_HISTORY {int(timeline)}")
            content = cursor.fetchone()[1]
            left_at = timelines(content if isinstance(content, str) else bytes(content).decode()).get(known)
    return System(str(identifier), int(timeline), lsn_number(end), left_at)


def timelines(history: str) -> dict[int, int]:
    """The LSN at which each timeline before was left, of the content of a history file."""
    lines = (line.split() for line in history.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return {int(fields[0]): lsn_number(fields[1]) for fields in lines}


def check_same(system: System, found: SlotState | None, settings: PostgresSettings, position: Position) -> None:
    """Raises ConnectError if the server lacks the WAL, or the history, of `position`.

    When asked to stream from a position that it does not have yet, a server silently skips everything until then.
    Positions without an identity, from before there was one or set by hand, are checked as far as possible.
    """
    where = f"PostgreSQL at {settings.database_hostname}:{settings.database_port}"
    lsn = position["lsn"]
    at = lsn_text(max(lsn, position.get("transaction", 0)))
    choices = [
        f"connect it to the server that has all up to {at}",
        "for a new snapshot delete the connector's offsets, or set snapshot.mode to when_needed",
    ]
    if found is not None:
        choices.append(
            f"if slot {settings.slot_name} is known to begin where the topics end, set the connector's offset to "
            f'{{"lsn": {found.confirmed}}} to go on from there'
        )
    remedy = "; or ".join(choices) + "; and restart it"
    was, timeline = position.get("system"), position.get("timeline")
    if was is not None and was != system.identifier and (found is None or found.confirmed != lsn):
        raise ConnectError(
            f"{where} is another system ({system.identifier}) than the one ({was}) of which this connector has all up "
            f"to {at}, a place that means nothing here: {remedy}"
        )
    if was == system.identifier and timeline is not None and timeline != system.timeline:
        if system.left_at is None:
            raise ConnectError(
                f"{where} is on timeline {system.timeline}, whose history lacks timeline {timeline}, on which this "
                f"connector came to {at}: {remedy}"
            )
        if lsn > system.left_at or position.get("transaction", -1) >= system.left_at:
            raise ConnectError(
                f"{where} left timeline {timeline} at {lsn_text(system.left_at)}, and this connector has read it up to "
                f"{at}: the changes between were lost in a failover or restore, and are in the topics; {remedy}"
            )
    if lsn > system.end:
        raise ConnectError(
            f"{where} has WAL up to {lsn_text(system.end)} only, and this connector has read up to {at}: the server is "
            f"another one, or was restored, and its changes would be skipped until then; {remedy}"
        )


def end_of_wal(connection: PostgresConnection, settings: PostgresSettings, position: Position) -> int:
    """Where the server's WAL ends. Raises ConnectError if `position` is of another server, Retriable for a standby."""
    check_server(connection)
    identifier, end = rows(
        connection, "SELECT system_identifier::text, pg_current_wal_flush_lsn()::text FROM pg_control_system()"
    )[0]
    where = f"PostgreSQL at {settings.database_hostname}:{settings.database_port}"
    if position.get("system") not in (None, identifier):
        raise ConnectError(
            f"{where} is another system ({identifier}) than that of the position ({position['system']}): the lag "
            "is not known"
        )
    if lsn_number(end) < position["lsn"]:
        raise ConnectError(
            f"{where} has WAL up to {end} only, and the position is {lsn_text(position['lsn'])}: the server was "
            "restored, or is another one"
        )
    return lsn_number(end)


def check_goes_on(found: SlotState | None, settings: PostgresSettings, position: Position) -> None:
    """Raises ConnectError if changes after `position` are no longer to be had."""
    lsn = position["lsn"]
    remedy = "for a new snapshot delete the connector's offsets, or set snapshot.mode to when_needed, and restart it"
    if found is None:
        raise ConnectError(
            f"slot {settings.slot_name} is gone, and with it the changes after {lsn_text(lsn)}: {remedy}"
        )
    if found.status == "lost":
        raise ConnectError(
            f"slot {settings.slot_name} has lost its WAL (max_slot_wal_keep_size was passed), and with it changes: "
            f"drop it by pg_drop_replication_slot('{settings.slot_name}'); {remedy}"
        )
    # Nothing was committed between `lsn` and the commit of a half-done transaction, and the server sends transactions
    # committed at the slot's position, or later. psycopg2 answers a server that asks while it decodes, before the first
    # row, with its present position: at most there.
    # It answers a stopping server likewise. The source stores that position, too, before it ends. If it is killed at
    # this very moment, the slot is beyond, too, without a trace of the cause: WAL that it has passed cannot be read
    # again, and an error is right where loss is possible.
    if found.confirmed > max(lsn, position.get("transaction", lsn)):
        raise ConnectError(
            f"slot {settings.slot_name} has been moved to {lsn_text(found.confirmed)} by another client, beyond "
            f"{lsn_text(lsn)}, this connector's position, and the changes in between are lost: {remedy}"
        )


def make_publication(connection: PostgresConnection, catalog: Catalog, settings: PostgresSettings) -> None:
    """Make the publication, or add what is captured to the one that is there. Raises ConnectError if it may not."""
    name, mode = settings.publication_name, settings.publication_autocreate_mode
    there = rows(connection, "SELECT puballtables FROM pg_publication WHERE pubname = %s", name)
    if there and (mode != "filtered" or there[0][0]):
        return
    if not there and mode == "disabled":
        raise ConnectError(
            f"publication {name} is not there and publication.autocreate.mode is disabled: "
            f"CREATE PUBLICATION {name} FOR TABLE ..."
        )
    tables = catalog.tables(and_signals=True)
    if there and not tables:
        return  # a table that was dropped left the publication, and may come back
    if mode == "filtered" and not tables:
        raise ConnectError("no table of the database is captured: look at table.include.list")
    if there:  # its other tables may be another connector's
        known = {oid for (oid,) in rows(connection, _MEMBERS, name)}
        tables = [each for each in tables if each.oid not in known]
        if not tables:
            return
    members = sql.SQL(", ").join(sql.Identifier(each.schema, each.name) for each in tables)
    if there:
        statement = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), members)
    else:
        which = sql.SQL("ALL TABLES") if mode == "all_tables" else sql.SQL("TABLE {}").format(members)
        statement = sql.SQL("CREATE PUBLICATION {} FOR {} WITH (publish_via_partition_root = {})").format(
            sql.Identifier(name), which, sql.Literal(settings.publish_via_partition_root)
        )
    doing = f"making publication {name} (or ask a superuser to, and set publication.autocreate.mode=disabled)"
    with explained(doing), connection.cursor() as cursor:
        cursor.execute(statement)


def unpublished(connection: PostgresConnection, catalog: Catalog) -> list[str]:
    """Full names of tables that settings select and whose changes do not come, for no publication has them.

    A partition is published with its table, and a table by its partitions, if these are captured.
    """
    parents = dict(rows(connection, _PARENTS))
    published = {each.oid for each in catalog.published()}
    reached = {above for each in published for above in _and_above(each, parents)}
    return [
        each.full_name
        for each in catalog.tables()
        if each.oid not in reached and published.isdisjoint(_and_above(each.oid, parents))
    ]


def _and_above(oid: int, parents: Mapping[int, int]) -> list[int]:
    """A table, what it is a partition of, and so on."""
    found = [oid]
    while found[-1] in parents:
        found.append(parents[found[-1]])
    return found


def create(replication: Any, name: str, *, temporary: bool) -> tuple[int, str]:
    """Make a slot. Returns the LSN from which it sees changes, and the name of the snapshot of all before.

    The snapshot lasts until the connection does something else.
    """
    command = f'CREATE_REPLICATION_SLOT "{name}" {"TEMPORARY " if temporary else ""}LOGICAL pgoutput EXPORT_SNAPSHOT'
    with explained(f"making replication slot {name}"), replication.cursor() as cursor:
        cursor.execute(command)
        _, point, snapshot, _ = cursor.fetchone()
    return lsn_number(point), snapshot


def drop(connection: PostgresConnection, name: str) -> None:
    """Drop a slot. Waits for a reader that has just stopped; raises Retriable if one continues."""
    with explained(f"dropping replication slot {name}"), connection.cursor() as cursor:
        for _ in range(_TRIES):
            cursor.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (name,))
            if cursor.fetchone() != (True,):
                break
            cursor.execute("SELECT pg_sleep(0.1)")
        cursor.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )


def check_free(found: SlotState | None, settings: PostgresSettings) -> None:
    """Raises Retriable if another session reads the slot: it may be the end of the one before."""
    if found is not None and found.active_pid is not None:
        raise Retriable(
            f"slot {settings.slot_name} is read by the server's process {found.active_pid}: wait for it, end it by "
            f"pg_terminate_backend({found.active_pid}), or give each connector a slot.name of its own"
        )
