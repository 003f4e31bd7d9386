"""Change capture where PostgreSQL's tables, values and servers are not as one expects them."""

from collections.abc import Iterator

import pytest

from ottla.connect.api import ConnectError
from ottla.connect.connectors.postgres.source import PostgresSource
from tests.connect.shipped.test_postgres import Database, ops
from tests.support.connect_tasks import running
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(wal_level="logical", max_replication_slots="20", max_wal_senders="20") as postgres:
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
