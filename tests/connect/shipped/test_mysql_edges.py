"""What servers and their users do that is not quite a row after the other, against a real MariaDB."""

import gc
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.mysql import stream as mysql_stream
from ottla.connect.connectors.mysql.source import MysqlSource
from tests.connect.shipped.mysql_database import Database, Driver, ops, up_to
from tests.support.connect_tasks import TaskContext, running
from tests.support.mariadb import MariaDb

_LONG_S = 30.0
_IDLE_S = 0.4
"""Longer than a batch is gathered."""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with MariaDb(binlog_row_metadata="FULL") as mariadb:
        yield mariadb


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    made.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (0)")
    yield made
    made.connection.close()


def set_globally(database: Database, **settings: str) -> None:
    root = database.server.connect()
    with root.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET GLOBAL {name} = '{value}'")
    root.close()


def test_a_snapshot_alone_is_not_followed_by_changes_after_a_restart(database: Database) -> None:
    config = database.config(snapshot_mode="initial_only")
    with running(MysqlSource, config) as source:
        assert ops(source.rest()) == [("r", 0)]
        position = source.position
    database.run("INSERT INTO items VALUES (1)")
    with running(MysqlSource, config, position) as source:
        assert source.rest() == []


@pytest.mark.parametrize("is_broken", [False, True], ids=["ended", "broken"])
def test_nothing_is_left_of_a_snapshot_that_ends_in_the_midst_of_a_table(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The driver reads the rest of a result whose cursor is closed or deleted, and fails without a connection."""
    database.run("CREATE TABLE long_ones (id INT PRIMARY KEY, text LONGTEXT)")
    database.run(f"INSERT INTO long_ones SELECT seq, REPEAT('x', 20000) FROM {up_to(900)}")
    settings = database.config(table_include_list="t.*long_ones", max_batch_size="10", snapshot_fetch_size="10")
    driver = Driver(monkeypatch)
    with suppress(Retriable), running(MysqlSource, settings) as source:
        source.until(bool)
        if is_broken:
            with database.server.connect() as other, other.cursor() as cursor:
                cursor.execute(
                    "SELECT id FROM information_schema.processlist WHERE info LIKE '%long%' AND id <> CONNECTION_ID()"
                )
                for (each,) in cursor.fetchall():
                    cursor.execute(f"KILL {each}")
            source.take(900)
    del source
    gc.collect()
    assert driver.failures == []
    assert driver.packets < 900


@pytest.mark.parametrize("then", ["", "FLUSH BINARY LOGS"])
def test_a_lone_change_is_handed_on_at_once(database: Database, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    monkeypatch.setattr(mysql_stream, "_BEAT_S", _LONG_S)
    began = time.monotonic()
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        database.run("INSERT INTO items VALUES (1)")
        assert ops(source.take(1)) == [("c", 1)]
        assert source.step() == []  # None: the runtime commits, and waits for nothing
        later = threading.Timer(_IDLE_S, database.run, [*filter(None, ["INSERT INTO items VALUES (2)", then])])
        later.start()
        assert ops(source.take(1)) == [("c", 2)]
        assert source.step() == []
        assert source.position is not None
        assert "events" not in source.position
        later.join()
    assert time.monotonic() - began < _LONG_S


@pytest.mark.soak
def test_a_lone_change_is_handed_on_at_once_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_stream, "_BEAT_S", _LONG_S)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    out = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *out], check=True, capture_output=True)
    tmp_path.chmod(0o755)
    key.chmod(0o644)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    with MariaDb(binlog_row_metadata="FULL", ssl_key=str(key), ssl_cert=str(certificate)) as server:
        database = Database(server, "secret")
        database.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (0)")
        began = time.monotonic()
        with running(MysqlSource, database.config(database_ssl_mode="required")) as source:
            source.take(1)
            database.run("INSERT INTO items VALUES (1)")
            assert ops(source.take(1)) == [("c", 1)]
            assert source.step() == []
        assert time.monotonic() - began < _LONG_S
        database.connection.close()


@pytest.mark.parametrize("mode", ["adaptive_time_microseconds", "connect"])
def test_dates_that_no_calendar_has_are_the_same_in_the_snapshot_and_in_the_stream(
    database: Database, mode: str
) -> None:
    kinds = {"d": "DATE", "t": "DATETIME", "f": "DATETIME(6)", "z": "TIMESTAMP", "g": "TIMESTAMP(6)"}
    columns = [
        f"{name}_{n} {kind} {null}" for name, kind in kinds.items() for n, null in enumerate(("NULL", "NOT NULL"))
    ]
    zero, odd = ("0000-00-00", "0000-00-00 00:00:00"), ("2020-02-30", "2020-02-30 01:02:03.5")
    lists = [
        [day, day, *[moment] * 4, *[zero[1]] * 4]
        for day, moment in (zero, ("2020-00-00", "2020-00-00 00:00:00"), ("2020-02-00", "2020-02-00 23:59:59"), odd)
    ]
    lists.append(["2020-02-29"] * 2 + ["2020-02-29 01:02:03"] * 8)
    values = ", ".join(f"({n}, {', '.join(map(repr, each))})" for n, each in enumerate(lists))
    database.run(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE old (id INT PRIMARY KEY, {', '.join(columns)})",
        f"INSERT INTO old VALUES {values}",
    )
    config = database.config(table_include_list=f"{database.name}.old", time_precision_mode=mode)
    with running(MysqlSource, config) as source:
        read = [each.value["after"] for each in source.take(len(lists))]
        database.run("DELETE FROM old", f"INSERT INTO old VALUES {values}")
        changed = source.until(lambda found: len(found) == 3 * len(lists))
    assert read == [each.value["after"] for each in changed[-len(lists) :]]
    for row in read[:4]:
        assert [row[name] for name in ("d_0", "t_0", "f_0")] == [None] * 3
        zeros = [row[name] for name in ("d_1", "t_1", "f_1")]
        assert zeros == [0] * 3 if mode != "connect" else {str(each)[:10] for each in zeros} == {"1970-01-01"}
    assert None not in read[4].values()


def test_statements_within_a_transaction_do_not_end_it(database: Database) -> None:
    """A position after its last row is not after the transaction, until that has ended."""
    with running(MysqlSource, database.config(max_batch_size="1")) as source:
        source.take(1)
        database.run(
            "BEGIN",
            "INSERT INTO items VALUES (1)",
            "SAVEPOINT here",
            "INSERT INTO items VALUES (2)",
            "ROLLBACK TO here",
            "CREATE TEMPORARY TABLE mine (id INT)",
            "INSERT INTO items VALUES (3)",
            "COMMIT",
        )
        assert ops(source.take(1)) == [("c", 1)]
        position = source.position
        assert position is not None
        assert position["events"] == 1
    with running(MysqlSource, database.config(), position) as source:
        assert ops(source.take(1)) == [("c", 3)]
    database.run("CREATE TABLE made (id INT PRIMARY KEY) SELECT id FROM items", "INSERT INTO items VALUES (9)")
    with running(MysqlSource, database.config(max_batch_size="1"), position) as source:
        assert ops(source.take(5)) == [("c", 3), ("c", 0), ("c", 1), ("c", 3), ("c", 9)]


def test_rows_of_a_transaction_that_took_the_place_of_a_half_done_one_are_not_passed_over(database: Database) -> None:
    """As after a failover to a server that did not have the half-done one."""
    with running(MysqlSource, database.config(max_batch_size="1")) as source:
        source.take(1)
        database.run("BEGIN", "INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)", "COMMIT")
        source.take(1)
        position = source.position
    assert position is not None
    assert position["transaction"].startswith("0-1-")
    with running(MysqlSource, database.config(), position) as source:
        assert ops(source.take(1)) == [("c", 2)]
    elsewhere = {**position, "transaction": position["transaction"].replace("0-1-", "0-2-")}
    with running(MysqlSource, database.config(), elsewhere) as source:
        assert ops(source.take(2)) == [("c", 1), ("c", 2)]
    unnamed = {name: value for name, value in position.items() if name != "transaction"}
    with running(MysqlSource, database.config(), unnamed) as source:
        assert ops(source.take(1)) == [("c", 2)]


@pytest.mark.soak
def test_a_transaction_that_a_crash_has_lost_does_not_hide_the_one_with_its_number() -> None:
    def ask(database: Database, statement: str) -> tuple[Any, ...]:
        with database.connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchone() or ())

    with MariaDb(binlog_row_metadata="FULL") as server:
        database = Database(server, "crashing")
        database.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (0)")
        file, pos = ask(database, "SHOW MASTER STATUS")[:2]
        database.run(*["CREATE OR REPLACE DATABASE another"] * 20)
        before = ask(database, "SELECT @@gtid_binlog_pos")
        with running(MysqlSource, database.config(max_batch_size="1")) as source:
            source.take(1)
            database.run("BEGIN", "INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)", "COMMIT")
            source.take(1)
            position = source.position
        server.kill()
        server.lose_binlog(file, pos)
        server.start()
        database = Database(server, "crashed")
        while ask(database, "SELECT @@gtid_binlog_pos") != before:
            database.run("CREATE OR REPLACE DATABASE another")
        database.run("USE crashing", "INSERT INTO items VALUES (3), (4)")
        assert position is not None
        config = database.config(database_include_list="crashing")
        with (
            running(MysqlSource, config, position) as source,
            pytest.raises(ConnectError, match="was restored, or lost the rest in a crash"),
        ):
            source.until(bool)
        # of a position without an identity only the half-done transaction can be checked
        known = {name: value for name, value in position.items() if name not in ("server", "created")}
        with running(MysqlSource, config, known) as source:
            first, second = source.take(2)
        assert ops([first, second]) == [("c", 3), ("c", 4)]
        assert first.value["source"]["gtid"] == position["transaction"]
        database.connection.close()


def test_distributed_transactions_come_when_they_are_prepared(database: Database) -> None:
    with running(MysqlSource, database.config(max_batch_size="1")) as source:
        source.take(1)
        database.run("XA START 'x'", "INSERT INTO items VALUES (1)", "INSERT INTO items VALUES (2)")
        database.run("XA END 'x'", "XA PREPARE 'x'")
        assert ops(source.take(1)) == [("c", 1)]
        position = source.position
        database.run("XA COMMIT 'x'", "INSERT INTO items VALUES (3)")
    with running(MysqlSource, database.config(), position) as source:
        assert ops(source.take(2)) == [("c", 2), ("c", 3)]
        database.run("XA START 'y'", "INSERT INTO items VALUES (4)", "XA END 'y'", "XA COMMIT 'y' ONE PHASE")
        assert ops(source.take(1)) == [("c", 4)]


def test_tables_without_transactions_are_captured(database: Database) -> None:
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        database.run(
            "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM",
            "INSERT INTO plain VALUES (1), (2)",
            "DELETE FROM plain WHERE id = 1",
        )
        assert ops(source.take(4)) == [("c", 1), ("c", 2), ("d", 1), (None, 1)]
        source.until(lambda _: "events" not in (source.position or {}))


@pytest.mark.parametrize("format_", ["STATEMENT", "MIXED"])
def test_a_statement_in_place_of_rows_is_an_error_and_the_position_stays_before_it(
    database: Database, format_: str
) -> None:
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        database.run(
            "INSERT INTO items VALUES (1)",
            f"SET SESSION binlog_format = '{format_}'",
            "CREATE TABLE `somewhere else` (id INT)",
            "/* a note */ INSERT INTO `somewhere else` VALUES (5)",
        )
        assert ops(source.take(1)) == [("c", 1)]
    with running(
        MysqlSource, database.config(table_include_list=rf"{database.name}\.items"), source.position
    ) as source:
        database.run("-- a note\nUPDATE items SET id = id + 10")
        with pytest.raises(ConnectError, match=r"has a statement that changed .*\.items in place of its rows \(UPDATE"):
            source.until(bool)
        position = source.position
        assert position is not None
    with (
        running(MysqlSource, database.config(), position) as source,
        pytest.raises(ConnectError, match="SET GLOBAL binlog_format = 'ROW'"),
    ):
        source.until(bool)


def test_compressed_events_are_an_error_and_not_passed_over(database: Database) -> None:
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        set_globally(database, log_bin_compress="ON")
        try:
            database.run(
                "CREATE TABLE texts (id INT PRIMARY KEY, t TEXT)", "INSERT INTO texts VALUES (1, REPEAT('x', 5000))"
            )
            with pytest.raises(ConnectError, match="SET GLOBAL log_bin_compress = OFF"):
                source.until(bool)
            with pytest.raises(ConnectError, match="log_bin_compress is ON, which cannot be read"):
                check(database)
        finally:
            set_globally(database, log_bin_compress="OFF")


def check(database: Database, **more: str) -> None:
    settings = MysqlSource.settings_model(**database.config(**more))
    MysqlSource.check(settings, TaskContext())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
    ],
)
def test_a_server_with_other_settings_is_refused_in_one_sentence(
    database: Database, name: str, wrong: str, right: str
) -> None:
    set_globally(database, **{name: wrong})
    try:
        with pytest.raises(
            ConnectError, match=rf"{name} is {wrong} and has to be {right}: SET GLOBAL {name} = '{right}'"
        ):
            check(database)
    finally:
        set_globally(database, **{name: right})


RIGHTS: dict[str, tuple[str, str | None]] = {
    "none to replicate": (
        "SELECT, RELOAD, BINLOG MONITOR",
        "may not read the binlog: GRANT SELECT, RELOAD, REPLICATION",
    ),
    "none to ask where it is": ("SELECT, RELOAD, REPLICATION SLAVE", "GRANT SELECT, RELOAD, REPLICATION SLAVE"),
    "none to select": ("RELOAD, REPLICATION SLAVE, BINLOG MONITOR", r"fits no table of the server"),
    "enough": ("SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR", None),
}


@pytest.mark.parametrize("which", RIGHTS)
def test_rights_that_are_missing_are_told_when_it_is_made(database: Database, which: str) -> None:
    rights, sentence = RIGHTS[which]
    user = "reader@'127.0.0.1'"
    database.run(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'r'", f"GRANT {rights} ON *.* TO {user}")
    of_reader: dict[str, Any] = {"database_user": "reader", "database_password": "r"}
    of_reader["table_include_list"] = rf"{database.name}\.items"
    if sentence is None:
        check(database, **of_reader)
        with running(MysqlSource, database.config(**of_reader)) as source:
            assert ops(source.take(1)) == [("r", 0)]
            database.run("INSERT INTO items VALUES (1)")
            assert ops(source.take(1)) == [("c", 1)]
    else:
        with pytest.raises(ConnectError, match=sentence):
            check(database, **of_reader)


def test_a_position_of_another_server_is_an_error(database: Database) -> None:
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        position = source.position
    assert position is not None
    elsewhere = dict(position) | {"gtids": "0-1-99999999"}
    lost = "no longer has the binlog from there on .* delete the connector's offsets"
    with running(MysqlSource, database.config(), elsewhere) as source, pytest.raises(ConnectError, match=lost):
        source.until(bool)
    for place in ({"file": position["file"], "pos": 10**9}, {"file": "binlog.999999", "pos": 4}):
        with (
            running(MysqlSource, database.config(), place) as source,
            pytest.raises(ConnectError, match="delete the connector's offsets"),
        ):
            source.until(bool)


def test_a_position_that_somebody_has_set_needs_no_gtids(database: Database) -> None:
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        position = source.position
    assert position is not None
    database.run("INSERT INTO items VALUES (1)")
    place = {name: position[name] for name in ("file", "pos")}
    with running(MysqlSource, database.config(), place) as source:
        assert ops(source.take(1)) == [("c", 1)]
