"""Tables of a real MariaDB read again amid their changes, when a row in the signal table asks for it."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.api import ConnectError, SourceRecord
from ottla.connect.connectors.mysql.source import MysqlSource
from tests.connect.shipped.mysql_database import SERVERS, Database, started, up_to
from tests.support.connect_tasks import RunningSource, TaskContext, running
from tests.support.mariadb import MariaDb

SIGNALS = "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    with started(request.param) as one:
        yield one


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    made.run(SIGNALS)
    yield made
    made.connection.close()


def config_of(database: Database, **more: str) -> dict[str, str]:
    signals = {"signal_data_collection": f"{database.name}.signals", "incremental_snapshot_chunk_size": "7"}
    return database.config(**({"snapshot_mode": "no_data"} | signals | more))


def ask(database: Database, *tables: str, kind: str = "execute-snapshot") -> None:
    names = ", ".join(f'"{database.name}.{table}"' for table in tables)
    data = f'{{"data-collections": [{names}]}}'
    database.run(f"INSERT INTO signals VALUES (UUID(), '{kind}', '{data}')")


def is_done(source: RunningSource) -> bool:
    """Whether no snapshot is asked for, after all that has come."""
    return source.position is not None and "incremental" not in source.position


def read_again(source: RunningSource) -> list[SourceRecord]:
    """Everything that comes until an incremental snapshot, which was begun, is done."""
    found = source.until(lambda _: not is_done(source))
    return found + source.until(lambda _: is_done(source))


class Copy:
    """What somebody has who applies records in their order."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.ops: list[str] = []

    def apply(self, records: list[SourceRecord]) -> None:
        for each in records:
            key = tuple(each.key.values())
            if each.value and each.value["after"]:
                self.rows[key] = each.value["after"]
                self.ops.append(each.value["op"])
            else:
                self.rows.pop(key, None)


@pytest.mark.parametrize("strategy", ["insert_insert", "INSERT_DELETE"])
def test_a_table_is_read_again_amid_its_changes(database: Database, strategy: str) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY, n INT)", f"INSERT INTO items SELECT seq, 0 FROM {up_to(100)}")
    config = config_of(
        database,
        table_include_list=rf"{database.name}\.items",
        incremental_snapshot_watermarking_strategy=strategy,
    )
    copy = Copy()
    with running(MysqlSource, config) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        for number in range(1, 9):  # changes of rows that are read, will be read, and were read
            copy.apply(source.step())
            database.run(
                f"UPDATE items SET n = {number} WHERE id % 9 = {number}", f"DELETE FROM items WHERE id = {number}"
            )
        copy.apply(source.until(lambda _: not is_done(source)))
        position = source.position
        assert position is not None
        assert position["incremental"]["tables"] == [f"{database.name}.items"]
    with running(MysqlSource, config, position) as source:
        copy.apply(source.until(lambda _: is_done(source)))
        database.run("INSERT INTO items VALUES (1000, 0)")
        copy.apply(source.until(lambda found: any(each.key == {"id": 1000} for each in found)))
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT id, n FROM items")
        assert {key: row["n"] for (key,), row in copy.rows.items()} == dict(cursor.fetchall())
        cursor.execute("SELECT count(*) FROM signals WHERE type LIKE 'snapshot-window-%'")
        (marks,) = cursor.fetchone() or ()
    assert set(copy.ops) == {"c", "u", "r"}
    assert (marks == 0) == (strategy == "INSERT_DELETE")


KEYS = {
    "two integers": (
        "a INT, b BIGINT UNSIGNED, PRIMARY KEY (b, a)",
        "(1, 18446744073709551615), (2, 1), (3, 1), (1, 2)",
    ),
    "a text": (
        "id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY",
        "('b'), ('A'), ('é'), ('it''s'), ('50%'), ('\\\\')",
    ),
    "bytes": ("id VARBINARY(4) PRIMARY KEY", "(X'00'), (X'FF00'), (X'27'), (X'5C')"),
    "bytes of a fixed length": ("id BINARY(3) PRIMARY KEY", "(X'000000'), (X'FF0000'), (X'010203'), (X'270000')"),
    "an enum": ("id ENUM('z','y','x','w') PRIMARY KEY", "('w'), ('z'), ('x'), ('y')"),
    "a decimal": (
        "id DECIMAL(30,10) PRIMARY KEY",
        "(12345678901234567890.0000000001), (-1.5), (0), (12345678901234567890)",
    ),
    "times": (
        "d DATE, t TIME(3), s DATETIME(6), PRIMARY KEY (d, t, s)",
        "('2024-01-01', '-01:00:00.5', '2024-01-01 00:00:00.000001'), ('2024-01-01', '-01:00:00.5', '2024-01-01'), "
        "('2024-01-01', '800:00:00', '2024-01-01'), ('2023-12-31', '0', '1000-01-01')",
    ),
    "a timestamp": (
        "id TIMESTAMP(3) PRIMARY KEY",
        "('2024-03-31 01:30:00'), ('2024-03-31 03:30:00.250'), ('1999-01-01')",
    ),
    "a percent sign": ("`100% of``it` INT PRIMARY KEY", "(1), (2), (3)"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_row_is_read_whatever_its_key_is(database: Database, kind: str) -> None:
    columns, values = KEYS[kind]
    database.run(f"CREATE TABLE items ({columns})", f"INSERT INTO items VALUES {values}")
    with running(MysqlSource, config_of(database, incremental_snapshot_chunk_size="1")) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        found = read_again(source)
        assert {each.value["op"] for each in found} == {"r"}
        keys = [tuple(each.key.values()) for each in found]
        assert len(keys) == len(set(keys)) == values.count("),") + 1
        database.run("DELETE FROM items")
        copy = Copy()
        copy.apply(found)
        copy.apply(source.take(2 * len(keys)))
        assert copy.rows == {}, "a key in the stream is the same as one that was read"


def test_a_row_that_changes_while_its_chunk_is_read_comes_once_and_new(database: Database) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY, n INT)", f"INSERT INTO items SELECT seq, 0 FROM {up_to(3)}")
    with running(MysqlSource, config_of(database)) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        source.until(lambda _: not is_done(source))
        # the chunk was read in the step before, and its second mark is still to be written or to be seen: so
        # a change of this transaction comes before that mark or after it, and the row's last record is the change
        database.run("UPDATE items SET n = 1 WHERE id = 2")
        copy = Copy()
        copy.apply(source.until(lambda _: is_done(source)))
        copy.apply(source.until(lambda _: (2,) in copy.rows and copy.rows[2,]["n"] == 1) if not _has(copy) else [])
    assert {key: row["n"] for (key,), row in copy.rows.items()} == {1: 0, 2: 1, 3: 0}


def _has(copy: Copy) -> bool:
    return (2,) in copy.rows and copy.rows[2,]["n"] == 1


def test_a_table_without_a_primary_key_is_left_out_and_the_status_says_so(database: Database) -> None:
    database.run("CREATE TABLE heap (n INT)", "CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    context = TaskContext()
    with running(MysqlSource, config_of(database), context=context) as source:
        source.step()  # the stream is begun
        ask(database, "heap", "items")
        assert [each.key for each in read_again(source)] == [{"id": 1}]
        assert context.warning == f"table {database.name}.heap has no primary key and is not read again"
        ask(database, "nothing")
        source.until(lambda _: "no captured table is called so" in str(context.warning))


def test_a_table_whose_form_changes_amid_it_is_read_as_it_is_then(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id INT PRIMARY KEY, old INT)", f"INSERT INTO items SELECT seq, seq FROM {up_to(20)}"
    )
    with running(MysqlSource, config_of(database)) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        found = source.until(lambda records: bool(records))
        database.run(
            "ALTER TABLE items DROP COLUMN old, ADD COLUMN fresh INT NOT NULL DEFAULT 5",
            "INSERT INTO items VALUES (50, 6)",
        )
        found += source.until(lambda _: is_done(source))
        found += source.until(lambda records: any(each.key == {"id": 50} for each in [*found, *records]))
    rows = {each.key["id"]: each.value["after"] for each in found}
    assert sorted(rows) == [*range(1, 21), 50]
    assert rows[1] == {"id": 1, "old": 1}
    assert rows[20] == {"id": 20, "fresh": 5}
    keys = [each.key["id"] for each in found]
    before = next(index for index, each in enumerate(found) if "fresh" in each.value["after"])
    assert all("old" in each.value["after"] for each in found[:before])
    assert all("fresh" in each.value["after"] for each in found[before:])
    assert len(keys) == len(set(keys))


def test_a_table_with_another_key_amid_it_is_read_from_its_start(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id INT PRIMARY KEY, other INT)", f"INSERT INTO items SELECT seq, -seq FROM {up_to(20)}"
    )
    with running(MysqlSource, config_of(database)) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        source.until(bool)
        database.run("ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (other)")
        found = source.until(lambda _: is_done(source))
    assert {each.key["other"] for each in found if "other" in each.key} == set(range(-20, 0))


@pytest.mark.parametrize("ended", ["TRUNCATE TABLE items", "DROP TABLE items"])
def test_a_table_that_is_emptied_amid_it_is_done(database: Database, ended: str) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY)", f"INSERT INTO items SELECT seq FROM {up_to(100)}")
    with running(MysqlSource, config_of(database)) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        found = source.until(bool)
        database.run(ended)
        found += source.until(lambda _: is_done(source))
        assert 0 < len(found) < 100


def test_a_signal_ends_it(database: Database) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY)", f"INSERT INTO items SELECT seq FROM {up_to(100)}")
    with running(MysqlSource, config_of(database)) as source:
        source.step()  # the stream is begun
        ask(database, "items")
        found = source.until(bool)
        ask(database, "items", kind="stop-snapshot")
        found += source.until(lambda _: is_done(source))
        assert 0 < len(found) < 100


def test_one_sentence_says_what_is_wrong_with_the_signal_table(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id INT PRIMARY KEY)",
        "DROP USER IF EXISTS reader@'127.0.0.1'",
        "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'r'",
        "GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'",
        "CREATE TABLE other (id INT PRIMARY KEY)",
    )

    def check(**more: str) -> None:
        settings = MysqlSource.settings_model(**config_of(database, **more))
        MysqlSource.check(settings, TaskContext())  # type: ignore[arg-type]

    check()
    for name in ("nothing", "other"):
        with pytest.raises(
            ConnectError, match=rf"is no table with the columns id.*CREATE TABLE {database.name}\.{name} "
        ):
            check(signal_data_collection=f"{database.name}.{name}")
    of_reader = {"database_user": "reader", "database_password": "r"}
    with pytest.raises(ConnectError, match=rf"cannot be written: GRANT INSERT ON {database.name}\.signals"):
        check(**of_reader)
    database.run(f"GRANT INSERT ON {database.name}.signals TO reader@'127.0.0.1'")
    check(**of_reader)
    with pytest.raises(ConnectError, match=rf"cannot be written: GRANT INSERT, DELETE ON {database.name}\.signals"):
        check(**of_reader, incremental_snapshot_watermarking_strategy="insert_delete")
