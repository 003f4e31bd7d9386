"""A standby that is promoted amid the capture: nothing is lost without a word, whatever became of the slot."""

from collections.abc import Iterator

import pytest

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.postgres.source import PostgresSource
from tests.connect.shipped.test_postgres import Database, ops
from tests.support.connect_tasks import RunningSource, running
from tests.support.eventually import eventually
from tests.support.postgres import USER, Postgres, Standby

SETTINGS = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}


@pytest.fixture
def primary() -> Iterator[Postgres]:
    with Postgres(**SETTINGS) as server:
        yield server


@pytest.fixture
def database(primary: Postgres) -> Iterator[Database]:
    made = Database(primary, "shop")
    made.run("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    yield made
    made.connection.close()


def streamed(source: RunningSource, database: Database) -> None:
    """The snapshot, and a change after it."""
    assert ops(source.take(1)) == [("r", 1)]
    database.run("INSERT INTO items VALUES (2)")
    assert ops(source.take(1)) == [("c", 2)]


def caught_up(standby: Standby, database: Database) -> None:
    end = database.ask("SELECT pg_current_wal_lsn()::text")
    eventually(lambda: standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{end}'"), timeout_s=60)


def failed_over(source: RunningSource, primary: Postgres, standby: Standby) -> None:
    """The primary dies while the source reads from it; its address becomes the standby's, which is promoted."""
    primary.die()
    with pytest.raises(Retriable):
        source.until(lambda _: False)
    standby.move_to(primary.port)
    config = {"database.port": primary.port, "database.hostname": "127.0.0.1", "database.user": USER}
    names = {"database.dbname": "shop", "slot.name": "shop_slot", "topic.prefix": "shop"}
    with (
        running(PostgresSource, config | names, source.position) as early,
        pytest.raises(Retriable, match="is a standby"),
    ):
        early.step()  # a standby is no primary yet: that passes
    standby.promote()


def test_a_standby_without_the_slot_is_refused_and_begins_with_a_snapshot_if_that_is_allowed(
    primary: Postgres, database: Database
) -> None:
    with Standby(primary) as standby:
        config = database.config()
        with running(PostgresSource, config) as source:
            streamed(source, database)
            database.run("INSERT INTO items VALUES (3)")  # the standby has it, and the source perhaps not
            caught_up(standby, database)
            failed_over(source, primary, standby)
            position, seen = source.position, {each.key["id"] for each in source.records}
        standby.run("shop", "INSERT INTO items VALUES (4)", "DELETE FROM items WHERE id = 1")
        with (
            running(PostgresSource, config, position) as source,
            pytest.raises(ConnectError, match=r"slot shop_slot is gone, .* delete the connector's offsets, or set"),
        ):
            source.step()
        # one that was made by hand after the promotion begins after what was not read
        standby.run("shop", "SELECT pg_create_logical_replication_slot('shop_slot', 'pgoutput')")
        with (
            running(PostgresSource, config, position) as source,
            pytest.raises(ConnectError, match=r"slot shop_slot has been moved to .* beyond"),
        ):
            source.step()
        with running(PostgresSource, {**config, "snapshot.mode": "when_needed"}, position) as source:
            assert ops(source.take(3)) == [("r", 2), ("r", 3), ("r", 4)]
            standby.run("shop", "INSERT INTO items VALUES (5)")
            assert ops(source.take(1)) == [("c", 5)]
        assert seen >= {1, 2}


def test_a_standby_with_the_slot_is_gone_on_with_and_loses_nothing(primary: Postgres, database: Database) -> None:
    with Standby(primary) as standby:
        config = database.config()
        with running(PostgresSource, config) as source:
            streamed(source, database)
            caught_up(standby, database)
            standby.take_slot("shop_slot")  # as slots with `failover` are copied since PostgreSQL 17
            database.run("INSERT INTO items SELECT generate_series(3, 1000)")
            source.until(lambda found: len(found) >= 1)
            caught_up(standby, database)
            failed_over(source, primary, standby)
            position = source.position
            seen = ops(source.records)
        standby.run("shop", "INSERT INTO items VALUES (1001)", "DELETE FROM items WHERE id = 1")
        with running(PostgresSource, config, position) as source:
            rest = ops(source.until(lambda found: (None, 1) in ops(found)))
        assert [*seen, *rest] == [("r", 1), *(("c", number) for number in range(2, 1002)), ("d", 1), (None, 1)]


def test_a_standby_that_lacks_what_was_read_is_refused(primary: Postgres, database: Database) -> None:
    with Standby(primary) as standby:
        config = database.config()
        with running(PostgresSource, config) as source:
            streamed(source, database)
            caught_up(standby, database)
            standby.take_slot("shop_slot")
            standby.stop_following()
            database.run("INSERT INTO items VALUES (3)")
            assert ops(source.take(1)) == [("c", 3)]
            failed_over(source, primary, standby)
            position = source.position
        standby.run("shop", "INSERT INTO items VALUES (4)", "SELECT pg_switch_wal()", "INSERT INTO items VALUES (5)")
        with (
            running(PostgresSource, config, position) as source,
            pytest.raises(
                ConnectError, match=r"left timeline 1 at .* lost in a failover or restore, and are in the topics"
            ),
        ):
            source.step()
