"""Positions and the binlog in which they are places, against real MariaDBs."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.mysql.source import MysqlSource
from tests.connect.shipped.mysql_database import SERVERS, Database, ops, started
from tests.support.connect_tasks import TaskContext, running
from tests.support.eventually import eventually
from tests.support.mariadb import PASSWORD, USER, MariaDb


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    with started(request.param) as one:
        yield one


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    made.run("CREATE TABLE items (id INT PRIMARY KEY)")
    yield made
    made.connection.close()


def insert(database: Database, first: int, count: int) -> None:
    database.run(*(f"INSERT INTO items VALUES ({number})" for number in range(first, first + count)))


def read(database: Database, count: int) -> dict[str, Any]:
    """The position after so many rows that come while it streams."""
    with running(MysqlSource, database.config()) as source:
        source.until(lambda _: source.position is not None and "snapshot" not in source.position)
        insert(database, 0, count)
        source.take(count)
        assert source.position is not None
        return dict(source.position)


def old(position: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in position.items() if name not in ("server", "created")}


def test_a_positions_lag_is_the_binlog_behind_it(database: Database) -> None:
    position = read(database, 2)
    settings: Any = MysqlSource.settings_model(**database.config())
    part = {"server": "shop"}
    before = MysqlSource.lag(settings, part, position, TaskContext())
    assert before is not None
    assert before.position == f"{position['file']}:{position['pos']}"
    assert before.bytes is not None
    database.run("CREATE TABLE big (note TEXT)", "FLUSH BINARY LOGS")
    database.run(f"INSERT INTO big VALUES ('{'x' * 50_000}')")

    after = MysqlSource.lag(settings, part, position, TaskContext())

    assert after is not None
    assert after.bytes is not None
    assert 50_000 < after.bytes - before.bytes < 200_000  # over the end of a file; MariaDB logs the statement, too
    assert after.end != before.end
    assert MysqlSource.lag(settings, {"server": "other"}, position, TaskContext()) is None
    assert MysqlSource.lag(settings, part, {"snapshot": True}, TaskContext()) is None


def test_a_position_says_whose_binlog_it_is_in_and_when_its_file_was_begun(database: Database) -> None:
    position = read(database, 2)
    with database.connection.cursor() as cursor:
        cursor.execute(f"SELECT @@server_{'id' if database.server.kind == 'mariadb' else 'uuid'}")
        (name,) = cursor.fetchone() or ("",)
    assert position["server"] == str(name)
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT unix_timestamp()")
        (now,) = cursor.fetchone() or (0,)
    assert now - 600 < position["created"] <= now
    before = position["created"]
    eventually(lambda: _now(database) > before)
    database.run("FLUSH BINARY LOGS", "INSERT INTO items VALUES (100)")
    with running(MysqlSource, database.config(), position) as source:
        assert ops(source.take(1)) == [("c", 100)]
        source.until(lambda _: (source.position or {}).get("file") != position["file"])
        assert source.position is not None
        assert source.position["created"] > before


def _now(database: Database) -> int:
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT unix_timestamp()")
        (now,) = cursor.fetchone() or (0,)
        return int(now)


def test_a_binlog_that_was_begun_anew_is_noticed_and_read_from_its_begin_if_somebody_says_so(
    database: Database,
) -> None:
    database.run("RESET MASTER")
    position = read(database, 10)
    eventually(lambda: _now(database) > position["created"])
    database.run("RESET MASTER", "DELETE FROM items")
    insert(database, 0, 40)
    sentence = r"has begun its binlog anew .*RESET MASTER.* new snapshot delete .* set the connector's offset to \{"
    with running(MysqlSource, database.config(), position) as source, pytest.raises(ConnectError, match=sentence):
        source.until(bool)
    with running(MysqlSource, database.config(snapshot_mode="when_needed"), position) as source:
        assert [op for op, _ in ops(source.take(40))] == ["r"] * 40
    with running(MysqlSource, database.config(), {"file": "binlog.000001", "pos": 4}) as source:
        found = source.until(lambda seen: len(seen) >= 40 and ops(seen)[-1] == ("c", 39))
        assert [each for each in ops(found) if each[0] == "c"] == [("c", number) for number in range(40)]
        assert source.position is not None
        assert "created" in source.position


def test_a_position_of_a_version_without_identities_goes_on_and_gains_one(database: Database) -> None:
    position = old(read(database, 2))
    with running(MysqlSource, database.config(), position) as source:
        insert(database, 10, 1)
        assert ops(source.take(1)) == [("c", 10)]
        assert source.position is not None
        assert {"server", "created"} <= set(source.position)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"file": "binlog.999999"}, r"no longer has binlog.999999,.* begun anew .* or purged"),
        ({"pos": 10**9}, r"has binlog.\d+ up to \d+ only, .* was restored, or lost the rest in a crash"),
        ({"server": "9", "gtids": ""}, r"is server \S+, but the position .* is of server 9; without GTIDs"),
        ({"server": "9", "gtids": "0-9-12"}, "no longer has the binlog from there on|does not have all transactions"),
    ],
)
def test_a_position_that_is_none_in_this_binlog_is_refused(
    database: Database, change: dict[str, Any], sentence: str
) -> None:
    position = read(database, 1)
    with (
        running(MysqlSource, database.config(), position | change) as source,
        pytest.raises(ConnectError, match=sentence),
    ):
        source.until(bool)


def test_a_file_that_was_purged_after_it_was_read_to_its_end_is_not_needed(database: Database) -> None:
    position = read(database, 1)
    database.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    with database.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        (file, *_) = cursor.fetchone() or ("",)

    def purged() -> bool:
        with database.connection.cursor() as cursor:
            cursor.execute(f"PURGE BINARY LOGS TO '{file}'")
            cursor.execute("SHOW BINARY LOGS")
            return len(cursor.fetchall()) == 1

    eventually(purged, timeout_s=60)
    insert(database, 10, 1)
    with running(MysqlSource, database.config(), position) as source:
        assert ops(source.take(1)) == [("c", 10)]


@pytest.mark.soak
def test_a_promoted_replica_is_gone_on_with_and_a_new_server_of_the_same_tables_is_not(database: Database) -> None:
    kind = database.server.kind
    with started(kind, server_id="2", log_slave_updates="ON") as replica:
        with replica.connect() as connection, connection.cursor() as cursor:
            cursor.execute("RESET MASTER")
            by_gtid = "MASTER_AUTO_POSITION=1"
            if kind == "mariadb":
                by_gtid = "MASTER_USE_GTID=slave_pos"
                cursor.execute("SET GLOBAL gtid_slave_pos = ''")
            cursor.execute(
                f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={database.server.port}, MASTER_USER='{USER}', "
                f"MASTER_PASSWORD='{PASSWORD}', {by_gtid}"
            )
            database.run("RESET MASTER", f"DROP DATABASE IF EXISTS {database.name}", f"CREATE DATABASE {database.name}")
            database.run(f"USE {database.name}")
            database.run("CREATE TABLE items (id INT PRIMARY KEY)")
            cursor.execute("START SLAVE")
            position = read(database, 3)
            wait = "MASTER_GTID_WAIT" if kind == "mariadb" else "WAIT_FOR_EXECUTED_GTID_SET"
            cursor.execute(f"SELECT {wait}(%s, 60)", (position["gtids"],))
            assert cursor.fetchone() == (0,)
            cursor.execute("STOP SLAVE")
            cursor.execute(f"INSERT INTO {database.name}.items VALUES (50)")
        there = database.config() | {"database.port": str(replica.port)}
        with running(MysqlSource, there, position) as source:
            assert ops(source.take(1)) == [("c", 50)]
            assert source.position is not None
            assert source.position["server"] != position["server"]
    with started(kind, server_id="3") as other:
        made = Database(other, database.name)
        made.run("CREATE TABLE items (id INT PRIMARY KEY)")
        insert(made, 0, 40)
        with (
            running(MysqlSource, made.config(), position) as source,
            pytest.raises(ConnectError, match=r"no longer has the binlog|does not have all transactions"),
        ):
            source.until(bool)
        made.connection.close()
