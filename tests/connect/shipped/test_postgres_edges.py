"""Change capture where PostgreSQL's tables, values and servers are not as one expects them."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from ottla.connect.api import ConfigError, ConnectError, Retriable
from ottla.connect.connectors.postgres import chunks, slot
from ottla.connect.connectors.postgres.catalog import Catalog, FoundTable
from ottla.connect.connectors.postgres.decoding.pgoutput import Relation
from ottla.connect.connectors.postgres.source import PostgresSource
from tests.connect.shipped.test_postgres import Database, database_ready, ops
from tests.support.connect_tasks import TaskContext, running
from tests.support.eventually import eventually
from tests.support.postgres import Postgres

EXECUTE_SNAPSHOT = """INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["public.*"]}')"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(wal_level="logical", max_replication_slots="40", max_wal_senders="40") as postgres:
        yield postgres


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"t{abs(hash(request.node.name)) % 10**12}")
    yield made
    made.connection.close()


def test_a_snapshot_alone_is_not_taken_again_and_needs_no_slot(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    config = database.config(snapshot_mode="initial_only")
    with running(PostgresSource, config) as source:
        assert ops(source.rest()) == [("r", 1)]
        position = source.position
    with running(PostgresSource, config, position) as source:
        assert source.rest() == []
    assert database.slots() == 0


@pytest.mark.parametrize(("table", "rewritten"), [("items", "items"), ("parted", "part")])
def test_a_table_that_is_rewritten_as_the_snapshot_begins_is_not_seen_as_empty(
    database: Database, monkeypatch: pytest.MonkeyPatch, table: str, rewritten: str
) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE TABLE parted (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "INSERT INTO items VALUES (1, 'x')",
        "INSERT INTO parted VALUES (1, 'x')",
    )
    config = database.config(publish_via_partition_root="true")
    create = slot.create

    def create_and_rewrite(*arguments: Any, **more: Any) -> tuple[int, str]:
        made = create(*arguments, **more)
        database.run(f"ALTER TABLE {table} ALTER note TYPE varchar(9) USING note || '!'")
        return made

    with monkeypatch.context() as patched:
        patched.setattr(slot, "create", create_and_rewrite)
        with (
            running(PostgresSource, config) as source,
            pytest.raises(Retriable, match=f"table {rewritten} was rewritten just as the snapshot began"),
        ):
            source.step()
    with running(PostgresSource, config) as source:
        assert ops(source.take(2)) == [("r", 1), ("r", 1)]


def test_rows_of_a_table_that_inherits_come_once(database: Database) -> None:
    database.run(
        "CREATE TABLE base (id int PRIMARY KEY)",
        "CREATE TABLE derived (PRIMARY KEY (id)) INHERITS (base)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "INSERT INTO base VALUES (1)",
        "INSERT INTO derived VALUES (2)",
        "INSERT INTO parted VALUES (3)",
    )
    with running(PostgresSource, database.config(publish_via_partition_root="true")) as source:
        found = [(each.topic, each.key["id"]) for each in source.take(3)]
    assert found == [("shop.public.base", 1), ("shop.public.derived", 2), ("shop.public.parted", 3)]


def test_rows_that_a_policy_hides_are_an_error_and_not_left_out(database: Database) -> None:
    role = f"reader_{database.name}"
    database.run(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        "CREATE TABLE items (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1), (2)",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY first ON items USING (id = 1)",
        f"GRANT SELECT ON items TO {role}",
        "CREATE PUBLICATION dbz_publication FOR TABLE items",
    )
    with (
        running(PostgresSource, database.config(database_user=role)) as source,
        pytest.raises(ConnectError, match='affected by row-level security policy for table "items"'),
    ):
        source.step()


def test_numbers_may_have_more_digits_than_python_reads_by_itself(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, amount numeric, exact numeric(60,10) "
        "DEFAULT 1234567890123456789012345.5)",
        "INSERT INTO items VALUES (1, 10::numeric ^ 5000 + 1)",
    )
    with running(PostgresSource, database.config()) as source:
        (record,) = source.take(1)
    after = record.value["after"]
    assert int.from_bytes(after["amount"]["value"], "big") == (10**5000 + 1) * 10 ** after["amount"]["scale"]
    assert str(after["exact"]) == "1234567890123456789012345.5000000000"


def test_rows_that_changed_before_their_table_got_another_key_have_the_key_that_they_had(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, code int NOT NULL)", "INSERT INTO items VALUES (1, 10)")
    with running(PostgresSource, database.config()) as source:
        source.take(1)
        source.step()
        position = source.position
    database.run(
        "INSERT INTO items VALUES (2, 20)",
        "DELETE FROM items WHERE id = 1",
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (code)",
        "DELETE FROM items WHERE id = 2",
    )
    with running(PostgresSource, database.config(), position) as source:
        found = [(each.value["op"] if each.value else None, each.key) for each in source.take(5)]
    assert found == [
        ("c", {"id": 2}), ("d", {"id": 1}), (None, {"id": 1}), ("d", {"code": 20}), (None, {"code": 20})
    ]  # fmt: skip


def keyed(records: list[Any]) -> list[tuple[str | None, Any]]:
    return [(each.value["op"] if each.value else None, each.key) for each in records]


def test_a_generated_column_in_a_key_is_refused_before_the_first_event(database: Database) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "CREATE TABLE gen (a int, b int, g int GENERATED ALWAYS AS (b * 2) STORED, PRIMARY KEY (a, g))",
        "INSERT INTO gen VALUES (1, 1), (1, 2), (1, 3)",
    )
    sentence = r"table public\.gen has the generated column g in its key, .* message\.key\.columns=public\.gen:"
    for mode in ("initial", "no_data"):
        config = database.config(snapshot_mode=mode, slot_name=f"{database.name}_{mode}")
        with running(PostgresSource, config) as source:
            with pytest.raises(ConnectError, match=sentence):
                source.until(lambda _: bool(database.run("UPDATE gen SET b = b")))
            assert source.records == []
    config = database.config(message_key_columns="public.gen:a,b")
    with running(PostgresSource, config) as source:
        keys = [each.key for each in source.take(4)]
    assert keys[1:] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3}]
    with (
        running(PostgresSource, database.config(message_key_columns="public.gen:a,g"), source.position) as source,
        pytest.raises(ConnectError, match=r"message\.key\.columns names column g for table public\.gen"),
    ):
        source.until(lambda _: bool(database.run("UPDATE gen SET b = b")))


def test_the_key_is_the_index_of_the_replica_identity_where_old_rows_have_nothing_else(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL UNIQUE)",
        "INSERT INTO items VALUES (1, 10), (2, 20)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX items_k_key",
    )
    with running(PostgresSource, database.config()) as source:
        source.take(2)
        database.run(
            "UPDATE items SET id = 3 WHERE id = 1", "UPDATE items SET k = 30 WHERE id = 2", "DELETE FROM items"
        )
        source.take(8)
    assert keyed(source.records) == [
        ("r", {"k": 10}), ("r", {"k": 20}), ("u", {"k": 10}),
        ("d", {"k": 20}), (None, {"k": 20}), ("c", {"k": 30}),
        ("d", {"k": 10}), (None, {"k": 10}), ("d", {"k": 30}), (None, {"k": 30}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("DROP TABLE items", r"table public\.items was dropped before its changes were read"),
        ("ALTER TABLE items RENAME id TO number", r"has column number in its key, which the changes .* do not have"),
    ],
)
def test_a_key_that_nobody_knows_any_more_is_refused_unless_it_is_named(
    database: Database, change: str, sentence: str
) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, v text)", "ALTER TABLE items REPLICA IDENTITY FULL")
    with running(PostgresSource, database.config()) as source:
        database_ready(source, database)
        position = source.position
    database.run("INSERT INTO items VALUES (1, 'a'), (2, 'b')", "DELETE FROM items WHERE id = 1", change)
    with running(PostgresSource, database.config(), position) as source:
        with pytest.raises(ConnectError, match=sentence):
            source.until(lambda _: False)
        assert source.records == []
    with running(PostgresSource, database.config(message_key_columns="public.items:id"), position) as source:
        found = keyed(source.take(4))
    assert found == [("c", {"id": 1}), ("c", {"id": 2}), ("d", {"id": 1}), (None, {"id": 1})]
    with running(PostgresSource, database.config(message_key_columns="public.items:"), position) as source:
        assert keyed(source.take(3)) == [("c", None), ("c", None), ("d", None)]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_null_from_before_a_column_may_not_be_null_is_a_null(database: Database, identity: str) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, n int, t text)", f"ALTER TABLE items REPLICA IDENTITY {identity}"
    )
    with running(PostgresSource, database.config()) as source:
        database_ready(source, database)
        position = source.position
    database.run(
        "INSERT INTO items VALUES (1, NULL, NULL), (2, NULL, NULL)",
        "DELETE FROM items WHERE id = 2",
        "UPDATE items SET n = 7, t = 'x'",
        "ALTER TABLE items ALTER n SET NOT NULL, ALTER t SET NOT NULL",
        "INSERT INTO items VALUES (3, 8, 'y')",
    )
    with running(PostgresSource, database.config(), position) as source:
        found = source.take(6)
    after = [each.value["after"] for each in found if each.value]
    assert after == [
        {"id": 1, "n": None, "t": None}, {"id": 2, "n": None, "t": None}, None,
        {"id": 1, "n": 7, "t": "x"}, {"id": 3, "n": 8, "t": "y"},
    ]  # fmt: skip
    if identity == "FULL":
        assert found[2].value["before"] == {"id": 2, "n": None, "t": None}
    optional = [
        each.value_schema.by_name["after"].schema.by_name["n"].schema.optional for each in found if each.value_schema
    ]
    assert optional == [True] * 4 + [False], "once the stream has the column as it is now"


def test_a_time_that_no_schema_holds_costs_its_row_alone(database: Database) -> None:
    far = "'294276-12-31 23:59:59.999999'"
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, at timestamp)",
        f"INSERT INTO items VALUES (1, '294246-01-01'), (2, {far}), (3, 'infinity')",
    )
    sentence = (
        r"column at of the rows for shop\.public\.items .*9224318015999999999 microseconds have more than 64 bits"
    )
    with running(PostgresSource, database.config()) as source, pytest.raises(ConnectError, match=sentence):
        source.take(1)
    context = TaskContext()
    context.tolerant = True
    with running(PostgresSource, database.config(slot_name=f"{database.name}_other"), context=context) as source:
        assert [each.key["id"] for each in source.take(2)] == [1, 3]
        database.run(f"INSERT INTO items VALUES (4, {far}), (5, NULL)", f"UPDATE items SET at = {far} WHERE id = 1")
        assert ops(source.take(1)) == [("c", 5)]
        source.until(lambda _: len(context.skipped) == 3)
    assert all("more than 64 bits" in each for each in context.skipped)


def test_columns_that_an_index_only_carries_along_are_not_of_the_key(database: Database) -> None:
    database.run(
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "CREATE TABLE a (note text, id int, size int, PRIMARY KEY (size, id) INCLUDE (note))",
        "CREATE TABLE b (LIKE a INCLUDING INDEXES)",
        "ALTER TABLE b REPLICA IDENTITY FULL",
        "INSERT INTO a VALUES ('x', 1, 2)",
        "INSERT INTO b VALUES ('x', 1, 2)",
    )
    config = database.config(table_include_list="public.a,public.b", signal_data_collection="public.signals")
    with running(PostgresSource, config) as source:
        found = source.take(2)
        database.run("UPDATE a SET note = 'y'", "UPDATE b SET note = 'y'", EXECUTE_SNAPSHOT)
        found += source.take(4)
    assert [each.value["op"] for each in found] == ["r", "r", "u", "u", "r", "r"]
    assert all(list(each.key.items()) == [("size", 2), ("id", 1)] for each in found)


def test_a_table_is_not_read_again_before_all_that_was_open_at_its_signal_has_ended(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "INSERT INTO items VALUES (1)",
    )
    config = database.config(
        snapshot_mode="no_data", table_include_list="public.items", signal_data_collection="public.signals"
    )
    context = TaskContext()
    monkeypatch.setattr(chunks, "_TIMEOUT_S", 1)
    with running(PostgresSource, config, context=context) as source, ExitStack() as open_ones:
        database_ready(source, database)
        database.run(EXECUTE_SNAPSHOT)
        early, late = (open_ones.enter_context(closing(database.connect())) for _ in range(2))
        for session in (early, late):  # both are open, and no transaction has ended since the first began
            session.cursor().execute("BEGIN; SELECT pg_current_xact_id()")
        source.until(lambda _: "incremental" in (source.position or {}))
        early.cursor().execute("COMMIT")
        end = f": end the session of process {late.info.backend_pid} in database {database.name} (idle in"
        assert source.until(lambda found: bool(found) or end in str(context.warning)) == []
        late.cursor().execute("COMMIT")
        assert ops(source.take(1)) == [("r", 1)]
        assert context.warning is None


@pytest.mark.parametrize(
    ("change", "rest"),
    [
        ("ALTER TABLE items ALTER note TYPE varchar(9) USING note || '!'", {"id", "note", "size"}),
        ("ALTER TABLE items DROP COLUMN note", {"id", "size"}),
        ("DROP TABLE items", None),
    ],
)
def test_a_table_that_is_altered_amid_its_chunks_is_read_on_as_it_is_then(
    database: Database, change: str, rest: set[str] | None
) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, note text, size int)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "INSERT INTO items SELECT number, 'x', 1 FROM generate_series(1, 9) number",
    )
    config = database.config(
        snapshot_mode="no_data",
        table_include_list="public.items",
        signal_data_collection="public.signals",
        incremental_snapshot_chunk_size="3",
    )
    context = TaskContext()
    with running(PostgresSource, config, context=context) as source, closing(database.connect()) as other:
        database_ready(source, database)
        database.run(EXECUTE_SNAPSHOT)
        assert ops(source.take(3)) == [("r", 1), ("r", 2), ("r", 3)]
        other.cursor().execute(f"BEGIN; {change}")
        committed = threading.Timer(1, lambda: other.cursor().execute("COMMIT"))
        committed.start()
        try:
            if rest is None:
                source.until(lambda _: context.warning is not None)
                assert context.warning == "table public.items is not there and is not read again"
            else:
                found = source.take(6)
                assert ops(found) == [("r", number) for number in range(4, 10)]
                assert {name for each in found for name in each.value["after"]} == rest
        finally:
            committed.join()


def test_a_table_that_is_dropped_while_it_is_looked_at_is_not_said_to_lack_a_key(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
    )
    config = database.config(
        snapshot_mode="no_data", table_include_list="public.items", signal_data_collection="public.signals"
    )
    context, relation = TaskContext(), Catalog.relation

    def relation_of_what_is_gone(catalog: Catalog, table: FoundTable) -> Relation:
        database.run("DROP TABLE IF EXISTS items")
        return relation(catalog, table)

    with running(PostgresSource, config, context=context) as source:
        database_ready(source, database)
        monkeypatch.setattr(Catalog, "relation", relation_of_what_is_gone)
        database.run(EXECUTE_SNAPSHOT)
        source.until(lambda _: context.warning is not None)
        assert context.warning == "table public.items is not there and is not read again"


def test_only_tables_that_are_published_are_read_again(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)",
        "CREATE PUBLICATION dbz_publication FOR TABLE items, signals",
        "INSERT INTO items VALUES (1), (2)",
        "INSERT INTO others VALUES (3)",
    )
    config = database.config(
        snapshot_mode="no_data",
        table_include_list="public.items,public.others",
        signal_data_collection="public.signals",
        incremental_snapshot_chunk_size="1",
    )
    context = TaskContext()
    with running(PostgresSource, config, context=context) as source:
        database_ready(source, database)
        database.run(EXECUTE_SNAPSHOT)
        assert ops(source.take(1)) == [("r", 1)]
        database.run("ALTER PUBLICATION dbz_publication DROP TABLE items")
        found = source.until(lambda _: "incremental" not in (source.position or {}))
    assert found == []
    assert context.warning == "table public.items is not in publication dbz_publication and is not read again"


def test_a_table_that_is_not_published_is_told_of(database: Database) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE PUBLICATION dbz_publication FOR TABLE a, parted",
        "INSERT INTO a VALUES (1)",
    )
    context = TaskContext()
    with running(PostgresSource, database.config(), context=context) as source:
        source.take(1)
        eventually(lambda: source.step() == [] and context.warning is not None)
        assert "table public.b is to be captured and is not in publication dbz_publication" in str(context.warning)
    with running(PostgresSource, database.config(table_include_list="public.parted"), context=context) as source:
        eventually(lambda: source.step() == [] and "table public.parted is to be" in str(context.warning))


def test_a_commit_right_behind_a_message_comes_after_a_restart(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    config = database.config(snapshot_mode="no_data")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        with closing(database.connect()) as other, other.cursor() as cursor:
            cursor.execute("BEGIN; INSERT INTO items VALUES (1)")
            database.run("SELECT pg_logical_emit_message(false, 'outbox', 'before')")
            source.take(1)
            source.stop()
            cursor.execute("COMMIT")
        position = source.position
    with running(PostgresSource, config, position) as source:
        assert ops(source.take(1)) == [("c", 1)]


def test_a_position_that_the_server_does_not_have_is_an_error_and_skips_nothing(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    config = database.config()
    with running(PostgresSource, config) as source:
        source.take(1)
        source.step()
        position = dict(source.position or {})
    database.run("INSERT INTO items VALUES (2)")
    ahead = position | {"lsn": position["lsn"] + (16 << 32)}
    for place, sentence in (
        (ahead, "its changes would be skipped until then"),
        ({"lsn": ahead["lsn"]}, "its changes would be skipped until then"),
        (position | {"lsn": position["lsn"] - 1, "system": "7"}, r"is another system \(\d+\) than the one \(7\)"),
    ):
        with running(PostgresSource, config, place) as source, pytest.raises(ConnectError, match=sentence):
            source.until(bool)
    for place in (position, {"lsn": position["lsn"]}):  # as they were kept before positions named their system
        with running(PostgresSource, config, place) as source:
            assert ops(source.take(1)) == [("c", 2)]
            assert (source.position or {})["system"] == position["system"]
    with running(PostgresSource, config | {"snapshot.mode": "when_needed"}, ahead) as source:
        assert ops(source.take(2)) == [("r", 1), ("r", 2)]


def test_a_promoted_server_is_gone_on_with_unless_it_lacks_what_was_read(server: Postgres, database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with running(PostgresSource, database.config()) as source:
        source.take(1)
        source.step()
        position = dict(source.position or {})
    database.run("INSERT INTO items VALUES (2)")
    database.connection.close()
    server._run("pg_ctl", "-w", "-m", "fast", "stop")
    (server.directory / "data" / "standby.signal").touch()
    server._start()
    database.connection = database.connect()
    database.run("SELECT pg_promote()", "CHECKPOINT", "INSERT INTO items VALUES (3)")
    beyond = position | {"lsn": int(database.ask("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))}
    with (
        running(PostgresSource, database.config(), beyond) as source,
        pytest.raises(ConnectError, match="were lost in a failover or restore, and are in the topics"),
    ):
        source.step()
    with running(PostgresSource, database.config(), position) as source:
        assert ops(source.take(2)) == [("c", 2), ("c", 3)]
        assert (source.position or {})["timeline"] == position["timeline"] + 1


def test_a_slot_at_the_commit_of_a_half_done_transaction_has_the_rest_of_it(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    config = database.config(snapshot_mode="no_data", max_batch_size="3")
    with running(PostgresSource, config) as source:
        database_ready(source, database)
        database.run("INSERT INTO items SELECT generate_series(1, 9)")
        assert ops(source.until(bool)) == [("c", number) for number in (1, 2, 3)]
        position = dict(source.position or {})
    assert position["lsn"] < position["transaction"]
    eventually(lambda: database.slots("active") == 0)
    # as the driver does if the server asks while it decodes, before the first row
    advanced = f"pg_replication_slot_advance('{config['slot.name']}', '0/0'::pg_lsn + {position['transaction']})"
    database.run(f"SELECT {advanced}")
    assert database.slots(f"confirmed_flush_lsn > '0/0'::pg_lsn + {position['lsn']}") == 1
    with running(PostgresSource, config, position) as source:
        assert ops(source.take(6)) == [("c", number) for number in range(4, 10)]


def test_a_publication_that_connectors_share_keeps_the_tables_of_all(database: Database) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    one = database.config(table_include_list="public.a", publication_autocreate_mode="filtered")
    other = one | {"table.include.list": "public.b", "slot.name": f"{database.name}_other"}
    for config in (one, other, one):
        with running(PostgresSource, config) as source:
            source.until(lambda _: source.position is not None)
    with running(PostgresSource, one, source.position) as source:
        database.run("INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (2)")
        assert ops(source.take(1)) == [("c", 2)]
    assert database.ask("SELECT count(*) FROM pg_publication_tables") == 2


def test_rights_that_lack_are_named(database: Database) -> None:
    role = f"poor_{database.name}"
    database.run(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE PUBLICATION dbz_publication FOR TABLE items",
    )
    with (
        running(PostgresSource, database.config(database_user=role)) as source,
        pytest.raises(ConnectError, match=r"permission denied for table items; grant the role of database\.user"),
    ):
        source.step()


def test_a_value_that_no_schema_holds_is_named_with_its_column_and_table(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric, grid int[])", "INSERT INTO items VALUES (1, 'NaN')"
    )
    with (
        running(PostgresSource, database.config()) as source,
        pytest.raises(ConnectError, match=r"column price of the rows for shop\.public\.items: .* holds NaN"),
    ):
        source.step()
    database.run("UPDATE items SET price = 1, grid = '{{1,2},{3,4}}'")
    with (
        running(PostgresSource, database.config()) as source,
        pytest.raises(ConnectError, match=r"column grid of the rows for shop\.public\.items: .* several dimensions"),
    ):
        source.step()


def test_a_slot_that_lost_its_wal_is_told_of_before_tables_are_read() -> None:
    with Postgres(wal_level="logical", max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB") as own:
        database = Database(own, "lost")
        database.run("CREATE TABLE items (id int PRIMARY KEY, note text)", "INSERT INTO items VALUES (0)")
        config = database.config(snapshot_mode="no_data")
        with running(PostgresSource, config) as source:
            source.until(lambda _: source.position is not None)
        for _ in range(20):
            if database.slots("wal_status = 'lost'"):
                break
            database.run(
                "CREATE TABLE filler AS SELECT repeat('x', 200) FROM generate_series(1, 50000)",
                "DROP TABLE filler",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
        for more in ({}, {"snapshot_mode": "initial"}):
            with (
                running(PostgresSource, config | database.config(**more)) as source,
                pytest.raises(ConnectError, match=r"lost_slot has lost its WAL .* pg_drop_replication_slot"),
            ):
                source.step()
        with running(PostgresSource, database.config(snapshot_mode="when_needed")) as source:
            assert ops(source.take(1)) == [("r", 0)]
            database.run("INSERT INTO items VALUES (1)")
            assert ops(source.take(1)) == [("c", 1)]


def test_what_passes_is_no_reason_for_a_new_snapshot(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    config = database.config(snapshot_mode="when_needed")
    with running(PostgresSource, config) as source:
        source.take(1)
        database_ready(source, database)
        position = source.position

    def away(*_arguments: Any) -> None:
        raise Retriable("the server is starting up")

    with monkeypatch.context() as patched:
        patched.setattr(slot, "check_same", away)
        with running(PostgresSource, config, position) as source, pytest.raises(Retriable, match="starting up"):
            source.step()
    assert database.slots() == 1
    database.run("INSERT INTO items VALUES (2)")
    with running(PostgresSource, config, position) as source:
        assert ops(source.take(1)) == [("c", 2)]


@pytest.mark.parametrize("mode", ["filtered", "all_tables"])
def test_a_source_goes_on_while_its_tables_are_not_there(database: Database, mode: str) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    config = database.config(table_include_list="public.items", publication_autocreate_mode=mode)
    with running(PostgresSource, config) as source:
        source.take(1)
        database_ready(source, database)
        database.run("INSERT INTO items VALUES (2)")
        source.take(1)
        position = source.position
    database.run("INSERT INTO items VALUES (3)", "DROP TABLE items")
    context = TaskContext()
    with running(PostgresSource, config, position, context=context) as source:
        source.step()
        assert "no table is captured that exists now" in str(context.warning)
    with (
        running(PostgresSource, config) as source,
        pytest.raises(ConfigError, match=r"table\.include\.list"),
    ):
        source.step()


def test_a_table_that_a_session_is_altering_holds_nothing_up(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, name text DEFAULT 'none', twice int GENERATED ALWAYS AS (2) STORED)"
    )
    with running(PostgresSource, database.config()) as source:
        database_ready(source, database)
        position = source.position
    database.run("INSERT INTO items VALUES (1, 'a')")
    with closing(database.connect()) as session, session.cursor() as cursor:
        cursor.execute("BEGIN; ALTER TABLE items ADD more int")
        with running(PostgresSource, database.config(), position) as source:
            (created,) = source.take(1)
    assert created.value["after"] == {"id": 1, "name": "a"}
    assert created.value_schema is not None
    names = {each.name: each.schema for each in created.value_schema.fields}
    assert names["after"].fields[1].schema.default == "none"
