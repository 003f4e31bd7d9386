"""Change capture against a real PostgreSQL, step by step: what is captured, from where it goes on, and what it says."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg2
import pytest

from ottla.connect.api import ConfigError, ConnectError, Retriable, SourceRecord
from ottla.connect.connectors.postgres.source import PostgresSource
from tests.support.connect_tasks import RunningSource, TaskContext, running
from tests.support.eventually import eventually
from tests.support.postgres import USER, Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(wal_level="logical", max_replication_slots="20", max_wal_senders="20") as postgres:
        yield postgres


class Database:
    """A database of the test's own, and the statements that it runs."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        with closing(self.connect("postgres")) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        self.connection = self.connect()

    def connect(self, name: str = "") -> Any:
        """A session of its own, in autocommit."""
        connection = psycopg2.connect(host="127.0.0.1", port=self.server.port, user=USER, dbname=name or self.name)
        connection.autocommit = True
        return connection

    def run(self, *statements: str) -> None:
        for statement in statements:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)

    def ask(self, query: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]

    def slots(self, where: str = "true") -> int:
        """How many of this database's slots are so."""
        query = f"SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND {where}"
        return int(self.ask(query))

    def config(self, **more: str) -> dict[str, str]:
        of_database = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.dbname": self.name,
            "slot.name": f"{self.name}_slot",
            "topic.prefix": "shop",
        }
        return of_database | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    yield made
    made.connection.close()


def ops(records: list[SourceRecord]) -> list[tuple[str | None, Any]]:
    """Op and key's id; None for a tombstone."""
    return [(each.value["op"] if each.value else None, each.key["id"] if each.key else None) for each in records]


def test_rows_come_first_then_their_changes_in_debeziums_envelope(database: Database) -> None:
    database.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, note text)",
        "INSERT INTO customers VALUES (1, 'Ada', NULL), (2, 'Bob', 'x')",
    )
    with running(PostgresSource, database.config()) as source:
        first, second = source.take(2)
        assert first.topic == "shop.public.customers"
        assert (first.key, first.value["op"], first.value["before"]) == ({"id": 1}, "r", None)
        assert first.value["after"] == {"id": 1, "name": "Ada", "note": None}
        assert (first.value["source"]["snapshot"], second.value["source"]["snapshot"]) == ("first", "last")
        database.run(
            "INSERT INTO customers VALUES (3, 'Cyd', 'new')",
            "UPDATE customers SET note = 'changed' WHERE id = 1",
            "DELETE FROM customers WHERE id = 2",
        )
        created, updated, deleted, tombstone = source.take(4)
        assert (created.value["op"], created.value["after"]["name"]) == ("c", "Cyd")
        assert (updated.value["op"], updated.value["before"], updated.value["after"]["note"]) == ("u", None, "changed")
        assert (deleted.value["op"], deleted.value["before"]) == ("d", {"id": 2, "name": "", "note": None})
        assert deleted.value["after"] is None
        assert (tombstone.key, tombstone.value, tombstone.value_schema) == ({"id": 2}, None, None)
        block = created.value["source"]
        assert (block["connector"], block["name"], block["db"]) == ("postgresql", "shop", database.name)
        assert (block["schema"], block["table"], block["snapshot"]) == ("public", "customers", "false")
        assert block["txId"] == database.ask("SELECT xmin::text::bigint FROM customers WHERE id = 3")
        assert json.loads(block["sequence"])[1] == str(block["lsn"])
        fields = [each.name for each in created.value_schema.fields] if created.value_schema else []
        assert fields == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]


def test_a_changed_key_is_a_delete_and_a_creation(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'a')")
    with running(PostgresSource, database.config()) as source:
        source.take(1)
        database.run("UPDATE items SET id = 7 WHERE id = 1")
        changed = source.take(3)
        assert ops(changed) == [("d", 1), (None, 1), ("c", 7)]
        assert changed[0].headers[0].key == "__debezium.newkey"
        assert changed[2].headers[0].value == {"id": 1}


def test_it_goes_on_in_the_middle_of_a_transaction(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    config = database.config(max_batch_size="10")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        database.run("INSERT INTO items SELECT generate_series(1, 95)", "INSERT INTO items VALUES (1000)")
        seen = ops(source.until(lambda found: len(found) >= 30))
        position = source.position
    while len(seen) < 96:
        with running(PostgresSource, config, position) as source:
            seen += ops(source.until(bool))
            position = source.position
    assert seen == [("c", number) for number in [*range(1, 96), 1000]]


def test_transactions_are_told_of_once_and_counted_on_in_the_middle_of_one(database: Database) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    config = database.config(max_batch_size="7", provide_transaction_metadata="true", xmin_fetch_interval_ms="1000")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        database.run(
            "BEGIN; INSERT INTO a SELECT generate_series(1, 20); INSERT INTO b SELECT generate_series(1, 20);"
            "UPDATE a SET id = 100 WHERE id = 1; COMMIT"
        )
        seen = source.until(bool)
        position = source.position
    while seen[-1].value is None or seen[-1].value.get("status") != "END":
        with running(PostgresSource, config, position) as source:
            seen += source.until(bool)
            position = source.position
    began, *changed, ended = [each for each in seen if each.value is not None]
    assert (began.topic, began.value["status"], ended.value["event_count"]) == ("shop.transaction", "BEGIN", 42)
    assert [each.value["transaction"]["total_order"] for each in changed] == list(range(1, 43))
    of_a = [each.value["transaction"]["data_collection_order"] for each in changed if each.topic == "shop.public.a"]
    assert of_a == list(range(1, 23))
    counts = [{"data_collection": "public.a", "event_count": 22}, {"data_collection": "public.b", "event_count": 20}]
    assert ended.value["data_collections"] == counts
    xid = database.ask("SELECT xmin::text FROM b LIMIT 1")
    assert {each.value["transaction"]["id"].partition(":")[0] for each in changed} == {xid}
    assert all(0 < each.value["source"]["xmin"] <= int(xid) + 1 for each in changed)


def test_logical_messages_come_once_in_their_place(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    config = database.config(max_batch_size="1", message_prefix_include_list="outbox")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        database.run(
            "SELECT pg_logical_emit_message(false, 'outbox', 'first')",
            "SELECT pg_logical_emit_message(false, 'else', 'not asked for')",
            "BEGIN; INSERT INTO items VALUES (1); SELECT pg_logical_emit_message(true, 'outbox', 'second'); COMMIT",
            "SELECT pg_logical_emit_message(false, 'outbox', 'third')",
            "INSERT INTO items VALUES (2)",
        )
    seen: list[Any] = []
    position = source.position
    while len(seen) < 5:
        with running(PostgresSource, config, position) as source:
            found = source.until(bool)
            seen += [each.value.get("message", each.value.get("after")) for each in found]
            position = source.position
    texts = [{"prefix": "outbox", "content": each} for each in (b"first", b"second", b"third")]
    assert seen == [texts[0], {"id": 1}, texts[1], texts[2], {"id": 2}]


def test_nothing_between_snapshot_and_changes_is_lost_or_doubled(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items SELECT generate_series(1, 500)")
    config = database.config(snapshot_fetch_size="50", max_batch_size="50")
    with running(PostgresSource, config) as source:
        source.step()
        database.run("INSERT INTO items SELECT generate_series(501, 600)")
        found = ops(source.take(600 - len(source.records)))
        assert ops(source.records) == [("r", n) for n in range(1, 501)] + [("c", n) for n in range(501, 601)]
        assert found[-1] == ("c", 600)


def test_a_snapshot_that_broke_off_starts_again(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items SELECT generate_series(1, 100)")
    config = database.config(max_batch_size="10")
    with running(PostgresSource, config) as source:
        source.step()
        position = source.position
    database.run("INSERT INTO items VALUES (101)")
    with running(PostgresSource, config, position) as source:
        assert ops(source.take(101)) == [("r", n) for n in range(1, 102)]
        database.run("DELETE FROM items WHERE id = 1")
        assert ops(source.take(2)) == [("d", 1), (None, 1)]


VALUES = {
    "smallint": ("32767", 32767, None),
    "boolean": ("true", True, None),
    "double precision": ("0.1", 0.1, None),
    "numeric(10,2)": ("-12.50", Decimal("-12.50"), "org.apache.kafka.connect.data.Decimal"),
    "numeric": ("12.345", {"scale": 3, "value": b"\x30\x39"}, "io.debezium.data.VariableScaleDecimal"),
    "money": ("'-1234.5'", Decimal("-1234.50"), "org.apache.kafka.connect.data.Decimal"),
    "char(3)": ("'a'", "a  ", None),
    "bytea": (r"'\x00ff'", b"\x00\xff", None),
    "bit(1)": ("B'1'", True, None),
    "bit(10)": ("B'0000000011'", b"\x03", "io.debezium.data.Bits"),
    "uuid": (
        "'6ecd8c99-4036-403d-bf84-cf8400f67836'",
        "6ecd8c99-4036-403d-bf84-cf8400f67836",
        "io.debezium.data.Uuid",
    ),
    "jsonb": ("'{\"a\": [1, null]}'", '{"a": [1, null]}', "io.debezium.data.Json"),
    "date": ("'2024-02-29'", 19782, "io.debezium.time.Date"),
    "time": ("'24:00:00'", 86_400_000_000, "io.debezium.time.MicroTime"),
    "time(3)": ("'00:00:01.5'", 1500, "io.debezium.time.Time"),
    "timetz": ("'01:00:00.25+02'", "23:00:00.25Z", "io.debezium.time.ZonedTime"),
    "timestamp": ("'1969-12-31 23:59:59.999999'", -1, "io.debezium.time.MicroTimestamp"),
    "timestamp(3)": ("'20000-01-01 00:00:00'", 568971820800000, "io.debezium.time.Timestamp"),
    "timestamptz": (
        "'2024-02-29 12:00:00.25+01'",
        "2024-02-29T11:00:00.250000Z",
        "io.debezium.time.ZonedTimestamp",
    ),
    "interval": ("'1 day 2 hours -3 seconds'", 93_597_000_000, "io.debezium.time.MicroDuration"),
    "point": (
        "'(1,2.5)'",
        {
            "x": 1.0,
            "y": 2.5,
            "wkb": bytes.fromhex("0101000000000000000000f03f0000000000000440"),
            "srid": None,
        },
        "io.debezium.data.geometry.Point",
    ),
    "int[]": ("'{1,NULL,3}'", [1, None, 3], None),
    "text[]": ("""ARRAY['a,"b', '', NULL, 'NULL', E'c\\\\']""", ['a,"b', "", None, "NULL", "c\\"], None),
    "date[]": ("'{2024-02-29}'", [19782], None),
    "int4range": ("'[1,5)'", "[1,5)", None),
    "inet": ("'10.0.0.1/8'", "10.0.0.1/8", None),
    "mood": ("'so so'", "so so", "io.debezium.data.Enum"),
    "amount": ("7.5", Decimal("7.50"), "org.apache.kafka.connect.data.Decimal"),
    "pair": ("ROW(1,'x')", "(1,x)", None),
}


def test_types_are_the_same_in_the_snapshot_and_in_the_stream(database: Database) -> None:
    columns = ", ".join(f'"c{number}" {kind}' for number, kind in enumerate(VALUES))
    literals = ", ".join(literal for literal, _, _ in VALUES.values())
    nulls = ", ".join("NULL" for _ in VALUES)
    database.run(
        "CREATE TYPE mood AS ENUM ('happy', 'so so')",
        "CREATE DOMAIN amount AS numeric(8,2)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
        f"INSERT INTO kinds VALUES (1, {literals})",
    )
    with running(PostgresSource, database.config()) as source:
        (read,) = source.take(1)
        database.run(f"INSERT INTO kinds VALUES (2, {literals}), (3, {nulls})")
        streamed, empty = source.take(2)
        assert streamed.value_schema == read.value_schema
        after = streamed.value_schema.by_name["after"].schema if streamed.value_schema else None
        assert after is not None
        for number, (kind, (_, expected, name)) in enumerate(VALUES.items()):
            column = f"c{number}"
            assert streamed.value["after"][column] == expected, kind
            assert read.value["after"][column] == expected, kind
            assert after.by_name[column].schema.name == name, kind
            assert empty.value["after"][column] is None, kind
        moods = after.by_name[f"c{list(VALUES).index('mood')}"].schema.parameters
        assert moods == {"allowed": "happy,so so"}


def test_a_value_that_stayed_in_toast_is_marked_or_taken_from_the_old_row(database: Database) -> None:
    database.run(
        "CREATE TABLE texts (id int PRIMARY KEY, n int, body text, body2 bytea)",
        "ALTER TABLE texts ALTER body SET STORAGE EXTERNAL, ALTER body2 SET STORAGE EXTERNAL",
        "INSERT INTO texts VALUES (1, 1, repeat('x', 10000), convert_to(repeat('y', 10000), 'UTF8'))",
    )
    with running(PostgresSource, database.config()) as source:
        source.take(1)
        database.run("UPDATE texts SET n = 2", "ALTER TABLE texts REPLICA IDENTITY FULL", "UPDATE texts SET n = 3")
        marked, whole = source.take(2)
        assert marked.value["after"]["body"] == "__debezium_unavailable_value"
        assert marked.value["after"]["body2"] == b"__debezium_unavailable_value"
        assert whole.value["after"]["body"] == whole.value["before"]["body"] == "x" * 10000
        assert whole.value["before"]["n"] == 2


def test_schema_changes_are_followed(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, old text)")
    with running(PostgresSource, database.config(snapshot_mode="no_data")) as source:
        database_ready(source, database)
        database.run(
            "INSERT INTO items VALUES (1, 'a')",
            "ALTER TABLE items ADD COLUMN fresh int NOT NULL DEFAULT 5",
            "INSERT INTO items VALUES (2, 'b', 6)",
            "ALTER TABLE items DROP COLUMN old",
            "INSERT INTO items VALUES (3, 7)",
        )
        rows = [each.value["after"] for each in source.take(3)]
        assert rows == [{"id": 1, "old": "a"}, {"id": 2, "old": "b", "fresh": 6}, {"id": 3, "fresh": 7}]


def database_ready(source: RunningSource, database: Database) -> None:
    """Wait until changes are followed."""

    def follows() -> bool:
        assert all(each.topic.startswith("__debezium-heartbeat") for each in source.step())
        return database.slots("active_pid IS NOT NULL") > 0

    eventually(follows)


def test_tables_and_columns_are_chosen_and_truncates_told_if_wanted(database: Database) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, secret text)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "INSERT INTO a VALUES (1, 's')",
        "INSERT INTO b VALUES (1)",
    )
    config = database.config(
        table_include_list="public.a",
        column_exclude_list="public.a.secret",
        publication_autocreate_mode="filtered",
        skipped_operations="none",
    )
    with running(PostgresSource, config) as source:
        (read,) = source.take(1)
        assert read.value["after"] == {"id": 1}
        database.run("INSERT INTO b VALUES (2)", "TRUNCATE a")
        (truncated,) = source.take(1)
        assert (truncated.value["op"], truncated.key) == ("t", None)


def test_what_is_safe_is_confirmed_also_while_nothing_captured_changes(database: Database) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    with running(PostgresSource, database.config(table_include_list="public.a", heartbeat_interval_ms="50")) as source:
        database_ready(source, database)
        database.run("INSERT INTO b SELECT generate_series(1, 1000)")
        wanted = database.ask("SELECT pg_current_wal_lsn()")

        def confirmed() -> bool:
            source.step()
            return database.slots(f"confirmed_flush_lsn >= '{wanted}'") == 1

        eventually(confirmed)
        assert source.records
        assert {each.topic for each in source.records} == {"__debezium-heartbeat.shop"}


def test_a_step_ends_while_what_is_not_captured_is_written_all_the_time(database: Database) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int)")
    config = database.config(table_include_list="public.a", publication_autocreate_mode="filtered")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        enough = threading.Event()

        def write() -> None:
            for _ in range(600):
                database.run("INSERT INTO b VALUES (1)")
                if enough.wait(0.05):
                    break

        writer = threading.Thread(target=write)
        writer.start()
        began, before = time.monotonic(), source.position
        try:
            for _ in range(3):
                source.step()
            took = time.monotonic() - began
        finally:
            enough.set()
            writer.join()
        assert took < 20, "it would not have stopped"
        assert source.position != before
        database.run("INSERT INTO a VALUES (1)")
        assert ops(source.take(1)) == [("c", 1)]


def test_a_slot_that_holds_back_too_much_is_told_of_and_dropped_only_when_told(database: Database) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    context = TaskContext()
    config = database.config(slot_lag_warn_bytes="1")
    with running(PostgresSource, config, context=context) as source:
        database_ready(source, database)
        assert "holds back" in str(context.warning)
    position = source.position
    assert database.slots() == 1
    dropping = running(PostgresSource, config | {"slot.lag.drop.bytes": "1"}, position)
    with dropping as source, pytest.raises(ConnectError, match="was dropped: delete the connector's offsets"):
        source.until(lambda _: False)
    assert database.slots() == 0


def test_a_slot_that_is_gone_is_an_error_unless_a_new_snapshot_is_allowed(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with running(PostgresSource, database.config()) as source:
        source.take(1)
        position = source.position
        database_ready(source, database)
    eventually(lambda: database.slots("active_pid IS NOT NULL") == 0)
    database.run(f"SELECT pg_drop_replication_slot('{database.name}_slot')", "INSERT INTO items VALUES (2)")
    with (
        running(PostgresSource, database.config(), position) as source,
        pytest.raises(ConnectError, match=r"slot t\d+_slot is gone, and with it the changes after .*delete"),
    ):
        source.step()
    with running(PostgresSource, database.config(snapshot_mode="when_needed"), position) as source:
        assert ops(source.take(2)) == [("r", 1), ("r", 2)]


def test_a_table_is_read_again_amid_its_changes(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "INSERT INTO items SELECT number, 0 FROM generate_series(1, 100) number",
    )
    config = database.config(
        snapshot_mode="no_data",
        table_include_list="public.items",
        signal_data_collection="public.signals",
        incremental_snapshot_chunk_size="7",
    )
    latest: dict[int, tuple[str, int]] = {}

    def apply(records: list[SourceRecord]) -> None:
        for each in records:
            if each.value and each.value["after"]:
                latest[each.key["id"]] = (each.value["op"], each.value["after"]["n"])
            else:
                latest.pop(each.key["id"], None)

    asked = """INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["public.items"]}')"""
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        database.run(asked)
        for number in range(1, 9):  # changes of rows that are read, will be read, and were read
            apply(source.step())
            database.run(
                f"UPDATE items SET n = {number} WHERE id % 9 = {number}", f"DELETE FROM items WHERE id = {number}"
            )
        position = source.position
        assert position is not None
        assert position["incremental"]["tables"] == ["public.items"]
    with running(PostgresSource, config, position) as source:
        apply(source.until(lambda _: "incremental" not in (source.position or {})))
        database.run("INSERT INTO items VALUES (1000, 0)")
        apply(source.until(lambda found: any(each.key == {"id": 1000} for each in found)))
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT id, n FROM items")
        assert {key: n for key, (_, n) in latest.items()} == dict(cursor.fetchall())
    assert {op for op, _ in latest.values()} == {"c", "u", "r"}


def test_rows_are_told_apart_by_the_primary_key_whatever_key_their_records_have(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, kind int NOT NULL)",
        "CREATE TABLE others (id int PRIMARY KEY, code int NOT NULL UNIQUE)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "INSERT INTO items SELECT number, 1 FROM generate_series(1, 30) number",
        "ALTER TABLE others REPLICA IDENTITY USING INDEX others_code_key",
    )
    config = database.config(
        snapshot_mode="no_data",
        table_include_list="public.items,public.others",
        message_key_columns="public.items:kind",
        signal_data_collection="public.signals",
        incremental_snapshot_chunk_size="7",
    )
    context = TaskContext()
    asked = """INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["public.*"]}')"""
    with running(PostgresSource, config, context=context) as source:
        database_ready(source, database)
        database.run(asked)
        records = source.take(30)
        source.until(lambda _: "replica identity" in str(context.warning))
    assert {each.key["kind"] for each in records} == {1}
    assert sorted(each.value["after"]["id"] for each in records) == list(range(1, 31))
    assert "public.others" in str(context.warning)


def test_one_sentence_says_what_is_wrong(database: Database, server: Postgres) -> None:
    database.run("CREATE TABLE orders (id int PRIMARY KEY)", f"CREATE ROLE reader_{database.name} LOGIN")

    def check(**more: str) -> None:
        settings = PostgresSource.settings_model(**database.config(**more))
        PostgresSource.check(settings, TaskContext())  # type: ignore[arg-type]

    check(table_include_list="public.orders")
    with pytest.raises(ConfigError, match=r"is it public\.orders\?"):
        check(table_include_list="public.ordres")
    with pytest.raises(ConnectError, match=rf"ALTER ROLE reader_{database.name} REPLICATION"):
        check(database_user=f"reader_{database.name}")
    with pytest.raises(ConnectError, match=r"check database\.dbname"):
        check(database_dbname="nothere")
    with pytest.raises(ConnectError, match=r"check database\.user"):
        check(database_user="nobody_here")
    with pytest.raises(Retriable, match="cannot be reached"):
        check(database_port="1")


def test_a_server_without_logical_wal_is_refused() -> None:
    with Postgres() as server:
        settings = PostgresSource.settings_model(**Database(server, "plain").config())
        with pytest.raises(ConnectError, match="set wal_level = logical in its configuration and restart it"):
            PostgresSource.check(settings, TaskContext())  # type: ignore[arg-type]
