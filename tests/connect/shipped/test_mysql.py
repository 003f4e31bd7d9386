"""Change capture against a real MariaDB, step by step: what is captured, from where it goes on, and what it says."""

import hashlib
import re
from collections.abc import Iterator
from decimal import Decimal

import pytest

from ottla.connect.api import ConfigError, ConnectError, Retriable
from ottla.connect.connectors.mysql.source import MysqlSource
from tests.connect.shipped.mysql_database import SERVERS, Database, ops, started
from tests.support.connect_tasks import TaskContext, running
from tests.support.eventually import eventually
from tests.support.mariadb import MariaDb


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    with started(request.param) as one:
        yield one


@pytest.fixture
def database(server: MariaDb, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    yield made
    made.connection.close()


def test_rows_come_first_then_their_changes_in_debeziums_envelope(database: Database) -> None:
    database.run(
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, note TEXT)",
        "INSERT INTO customers VALUES (1, 'Ada', NULL), (2, 'Bob', 'x')",
    )
    with running(MysqlSource, database.config()) as source:
        first, second = source.take(2)
        assert first.topic == f"shop.{database.name}.customers"
        assert (first.key, first.value["op"], first.value["before"]) == ({"id": 1}, "r", None)
        assert first.value["after"] == {"id": 1, "name": "Ada", "note": None}
        assert (first.value["source"]["snapshot"], second.value["source"]["snapshot"]) == ("first", "last")
        database.run(
            "INSERT INTO customers VALUES (3, 'Cyd', 'néw')",
            "UPDATE customers SET note = 'changed' WHERE id = 1",
            "UPDATE customers SET id = 9 WHERE id = 1",
            "DELETE FROM customers WHERE id = 2",
        )
        created, updated, gone, tombstone, moved, deleted, last = source.take(7)
        assert (created.value["op"], created.value["after"]) == ("c", {"id": 3, "name": "Cyd", "note": "néw"})
        assert (updated.value["op"], updated.value["before"]["note"], updated.value["after"]["note"]) == (
            "u",
            None,
            "changed",
        )
        assert ops([gone, tombstone, moved]) == [("d", 1), (None, 1), ("c", 9)]
        assert deleted.value["before"] == {"id": 2, "name": "Bob", "note": "x"}
        assert (last.key, last.value) == ({"id": 2}, None)
        block = created.value["source"]
        kind = database.server.kind
        assert (block["connector"], block["db"], block["table"]) == (kind, database.name, "customers")
        assert re.match(r"0-1-\d+$" if kind == "mariadb" else r"[0-9a-f-]{36}:\d+$", block["gtid"])
        assert block["file"].startswith("binlog.")


def test_it_goes_on_in_the_middle_of_a_transaction(database: Database) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (0)")
    config = database.config(max_batch_size="10")
    with running(MysqlSource, config) as source:
        source.take(1)
        values = ", ".join(f"({number})" for number in range(1, 3001))
        database.run("BEGIN", f"INSERT INTO items VALUES {values}", "INSERT INTO items VALUES (4000)", "COMMIT")
        database.run("INSERT INTO items VALUES (5000)")
        seen = ops(source.until(lambda found: len(found) >= 30))
        position = source.position
    while len(seen) < 3002:
        with running(MysqlSource, config, position) as source:
            seen += ops(source.until(bool))
            position = source.position
    assert seen == [("c", number) for number in [*range(1, 3001), 4000, 5000]]


def test_a_snapshot_that_broke_off_starts_again(database: Database) -> None:
    values = ", ".join(f"({number})" for number in range(1, 101))
    database.run("CREATE TABLE items (id INT PRIMARY KEY)", f"INSERT INTO items VALUES {values}")
    config = database.config(max_batch_size="10")
    with running(MysqlSource, config) as source:
        source.step()
        position = source.position
        database.run("INSERT INTO items VALUES (101)")
        assert ops(source.take(101 - len(source.records)))[-1] == ("c", 101)
    with running(MysqlSource, config, position) as source:
        assert ops(source.take(101)) == [("r", n) for n in range(1, 102)]


VALUES = {
    "TINYINT": ("-5", -5, None),
    "INT UNSIGNED": ("4294967295", 4294967295, None),
    "BIGINT UNSIGNED": ("18446744073709551615", -1, None),
    "DECIMAL(10,2)": ("-12.50", Decimal("-12.50"), "org.apache.kafka.connect.data.Decimal"),
    "DOUBLE": ("0.1", 0.1, None),
    "CHAR(3)": ("'é'", "é", None),
    "VARBINARY(4)": ("X'00FF'", b"\x00\xff", None),
    "BINARY(4)": ("X'FF00'", b"\xff\x00\x00\x00", None),
    "FLOAT": ("16777215", 16777215.0, None),
    "BLOB": ("X'00FF'", b"\x00\xff", None),
    "LONGTEXT": ("'long'", "long", None),
    "BIT(1)": ("b'1'", True, None),
    "BIT(10)": ("b'0100000011'", b"\x03\x01", "io.debezium.data.Bits"),
    "ENUM('a','it''s')": ("'it''s'", "it's", "io.debezium.data.Enum"),
    "SET('x','y','z')": ("'z,x'", "x,z", "io.debezium.data.EnumSet"),
    "YEAR": ("2024", 2024, "io.debezium.time.Year"),
    "DATE": ("'2024-02-29'", 19782, "io.debezium.time.Date"),
    "TIME(3)": ("'-01:00:00.5'", -3_600_500_000, "io.debezium.time.MicroTime"),
    "DATETIME": ("'1970-01-01 00:00:01'", 1000, "io.debezium.time.Timestamp"),
    "DATETIME(6)": ("'1969-12-31 23:59:59.999999'", -1, "io.debezium.time.MicroTimestamp"),
    "TIMESTAMP(3) NULL": ("'2024-02-29 12:00:00.25'", "2024-02-29T12:00:00.25Z", "io.debezium.time.ZonedTimestamp"),
}


def test_types_are_the_same_in_the_snapshot_and_in_the_stream(database: Database) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(VALUES))
    literals = ", ".join(literal for literal, _, _ in VALUES.values())
    nulls = ", ".join("NULL" for _ in VALUES)
    database.run(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE kinds (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO kinds VALUES (1, {literals})",
    )
    with running(MysqlSource, database.config()) as source:
        (read,) = source.take(1)
        database.run(f"INSERT INTO kinds VALUES (2, {literals}), (3, {nulls})")
        streamed, empty = source.take(2)
        assert streamed.value_schema == read.value_schema
        after = streamed.value_schema.by_name["after"].schema if streamed.value_schema else None
        assert after is not None
        for number, (kind, (_, expected, name)) in enumerate(VALUES.items()):
            column = f"c{number}"
            assert read.value["after"][column] == expected, kind
            assert streamed.value["after"][column] == expected, kind
            assert after.by_name[column].schema.name == name, kind
            assert empty.value["after"][column] is None, kind


IDENTIFIERS = {
    "UUID": [
        "123e4567-e89b-12d3-a456-426655440000",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "018f6e5c-1d2b-7c3d-8e4f-5a6b7c8d9e00",
        "00000000-0000-0000-0000-000000000000",
    ],
    "INET6": ["2001:db8::1", "::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "fe80::1:0:0", "2001:db8::"],
    "INET4": ["10.0.0.0", "0.0.0.0", "255.1.2.3"],
}


@pytest.mark.parametrize("kind", IDENTIFIERS)
def test_identifiers_are_the_same_texts_in_the_snapshot_and_in_the_stream(database: Database, kind: str) -> None:
    if database.server.kind != "mariadb":
        pytest.skip("MySQL has no such types")
    texts = IDENTIFIERS[kind]
    values = ", ".join(f"('{text}')" for text in texts)
    database.run(f"CREATE TABLE things (id {kind} PRIMARY KEY)", f"INSERT INTO things VALUES {values}")
    with running(MysqlSource, database.config()) as source:
        assert {each.key["id"] for each in source.take(len(texts))} == set(texts)
        database.run("DELETE FROM things")
        assert {each.key["id"] for each in source.take(2 * len(texts))} == set(texts)


def test_columns_are_masked_cut_off_and_left_out_of_rows(database: Database) -> None:
    database.run(
        "CREATE TABLE people (name VARCHAR(20) PRIMARY KEY, mail VARCHAR(8), note TEXT)",
        "INSERT INTO people VALUES ('Ada', 'a@b.c', 'a long one')",
    )
    rules = {
        "column.exclude.list": f"{database.name}.people.name",
        "column.mask.hash.v2.MD5.with.salt.s": f"{database.name}.people.mail",
        "column.truncate.to.6.chars": f"{database.name}.people.note",
    }
    hashed = hashlib.md5(b"sa@b.c", usedforsecurity=False).hexdigest()[:8]
    with running(MysqlSource, database.config() | rules) as source:
        (read,) = source.take(1)
        database.run("DELETE FROM people")
        deleted, _ = source.take(2)
    assert read.key == deleted.key == {"name": "Ada"}
    assert read.value["after"] == deleted.value["before"] == {"mail": hashed, "note": "a long"}


def test_schema_changes_are_followed(database: Database) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY, old TEXT)", "INSERT INTO items VALUES (0, 'z')")
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        database.run(
            "INSERT INTO items VALUES (1, 'a')",
            "ALTER TABLE items ADD COLUMN fresh INT NOT NULL DEFAULT 5",
            "INSERT INTO items VALUES (2, 'b', 6)",
            "ALTER TABLE items DROP COLUMN old",
            "INSERT INTO items VALUES (3, 7)",
        )
        rows = [each.value["after"] for each in source.take(3)]
        assert rows == [{"id": 1, "old": "a"}, {"id": 2, "old": "b", "fresh": 6}, {"id": 3, "fresh": 7}]


def test_a_binlog_that_is_gone_is_an_error(database: Database) -> None:
    database.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with running(MysqlSource, database.config()) as source:
        source.take(1)
        position = source.position
    database.run("INSERT INTO items VALUES (2)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")

    def is_purged() -> bool:
        """The server keeps what somebody reads, and knows a little later that nobody does."""
        with database.connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            row = cursor.fetchone()
            assert row is not None
            cursor.execute(f"PURGE BINARY LOGS TO '{row[0]}'")
            return cursor.execute("SHOW BINARY LOGS") == 1

    eventually(is_purged)
    with (
        running(MysqlSource, database.config(), position) as source,
        pytest.raises(ConnectError, match=r"no longer has the binlog from there on .* delete the connector's offsets"),
    ):
        source.until(bool)
    with running(MysqlSource, database.config(snapshot_mode="when_needed"), position) as source:
        assert ops(source.take(2)) == [("r", 1), ("r", 2)]


def test_one_sentence_says_what_is_wrong(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "DROP USER IF EXISTS plain@'127.0.0.1'",
        "CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'plain'",
    )

    def check(**more: str) -> None:
        settings = MysqlSource.settings_model(**database.config(**more))
        MysqlSource.check(settings, TaskContext())  # type: ignore[arg-type]

    check(table_include_list=f"{database.name}.orders")
    with pytest.raises(ConfigError, match=rf"is it {database.name}\.orders\?"):
        check(table_include_list=f"{database.name}.ordres")
    with pytest.raises(ConnectError, match=r"check database\.user and database\.password"):
        check(database_password="wrong")
    with pytest.raises(ConnectError, match="GRANT SELECT, RELOAD, REPLICATION SLAVE"):
        check(database_user="plain", database_password="plain")
    with pytest.raises(Retriable, match=r"connecting to 127\.0\.0\.1:1"):
        check(database_port="1")
    root = database.server.connect()
    with root.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
        try:
            with pytest.raises(ConnectError, match="binlog_row_metadata is MINIMAL and has to be FULL"):
                check()
        finally:
            cursor.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    root.close()
