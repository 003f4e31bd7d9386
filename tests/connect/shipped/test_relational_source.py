"""The relational source against SQLite, PostgreSQL and MariaDB: which rows come, and from where it goes on."""

import datetime as dt
import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from typing import Any
from warnings import catch_warnings

import pytest
from sqlalchemy import Engine, text

from ottla.connect.api import ConfigError, ConnectError, Retriable, SourceRecord
from ottla.connect.connectors.relational.source import RelationalSource
from tests.connect.shipped.databases import emptied, rows
from tests.connect.shipped.mysql_database import Driver, up_to
from tests.support.connect_tasks import TaskContext, running
from tests.support.eventually import eventually


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    found = emptied(url)
    run(found, "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20), price NUMERIC(9,2), changed TIMESTAMP NULL)")
    yield found
    found.dispose()


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def add(engine: Engine, *rows: tuple[int, str, str | None]) -> None:
    for key, name, changed in rows:
        at = f"'{changed}'" if changed else "NULL"
        run(engine, f"INSERT INTO items VALUES ({key}, '{name}', 1.5, {at})")


def config(engine: Engine, **more: str) -> dict[str, str]:
    url = engine.url.render_as_string(hide_password=False)
    given = {"connection_url": url, "topic_prefix": "db-", "poll_interval_ms": "10", "table_whitelist": "items"} | more
    return {name.replace("_", "."): value for name, value in given.items()}


def names(records: list[SourceRecord]) -> list[str]:
    return [each.value["name"] for each in records]


def at(record: SourceRecord) -> Any:
    assert record.part is not None
    return TaskContext({str(dict(record.part)): record.position or {}})


def test_rows_with_higher_numbers_are_new(engine: Engine) -> None:
    settings = config(engine, mode="incrementing", incrementing_column_name="id")
    add(engine, (1, "a", "2024-02-29 12:00:00"), (2, "b", None))
    with running(RelationalSource, settings) as source:
        first, second = source.take(2)
        assert (first.topic, first.key, first.value_schema is not None) == ("db-items", {"id": 1}, True)
        stamp = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
        assert first.value == {"id": 1, "name": "a", "price": Decimal("1.50"), "changed": stamp}
        assert second.value["changed"] is None
        add(engine, (5, "c", None))
        assert names(source.take(1)) == ["c"]
    add(engine, (6, "d", None))
    with running(RelationalSource, settings, context=at(first)) as source:
        assert names(source.take(3)) == ["b", "c", "d"]


def test_rows_changed_later_come_again(engine: Engine) -> None:
    settings = config(engine, mode="timestamp", timestamp_column_name="changed", batch_max_rows="1")
    add(engine, (1, "a", "2024-01-01 00:00:00"), (2, "b", "2024-01-01 00:00:00"), (3, "c", "2024-01-02 00:00:00"))
    with running(RelationalSource, settings) as source:
        records = source.take(3)
        positions = {each.value["name"]: each.position for each in records}
        assert sorted(positions) == ["a", "b", "c"]
        assert None in (positions["a"], positions["b"]), "a moment is done when all of its rows are"
        run(engine, "UPDATE items SET name = 'a2', changed = '2024-01-03 00:00:00' WHERE id = 1")
        assert names(source.take(1)) == ["a2"]


def test_both_tell_rows_of_one_moment_apart(engine: Engine) -> None:
    settings = config(
        engine, mode="timestamp+incrementing", timestamp_column_name="changed", incrementing_column_name="id"
    )
    add(engine, *((number, f"n{number}", "2024-01-01 00:00:00") for number in range(1, 5)))
    add(engine, (9, "future", "2037-01-01 00:00:00"))
    with running(RelationalSource, settings) as source:
        records = source.take(4)
    with running(RelationalSource, settings, context=at(records[1])) as source:
        assert names(source.take(2)) == ["n3", "n4"]


def test_whole_tables_and_queries(engine: Engine) -> None:
    add(engine, (1, "a", None), (2, "b", None))
    with running(RelationalSource, config(engine, mode="bulk", poll_interval_ms="60000")) as source:
        assert names(source.take(2)) == ["a", "b"]
    query = config(
        engine,
        mode="incrementing",
        incrementing_column_name="id",
        query="SELECT id, name FROM items",
        table_whitelist="",
    )
    with running(RelationalSource, query) as source:
        first, _ = source.take(2)
        assert (first.topic, first.value) == ("db-", {"id": 1, "name": "a"})


def test_tables_are_shared_among_tasks_and_names_checked(engine: Engine) -> None:
    run(engine, "CREATE TABLE other (id INT PRIMARY KEY)")
    context: Any = TaskContext()

    def settings(**more: str) -> Any:
        return RelationalSource.settings_model(**config(engine, **more))

    shared = RelationalSource.tasks(settings(mode="bulk", table_whitelist=""), 5, context)
    assert sorted(each["table.whitelist"] for each in shared) == ["items", "other"]
    with pytest.raises(ConfigError, match="there is no table nothere"):
        RelationalSource.check(settings(mode="bulk", table_whitelist="nothere"), context)
    with pytest.raises(ConfigError, match="table items has no column key; it has id, name"):
        RelationalSource.check(settings(mode="incrementing", incrementing_column_name="key"), context)
    with pytest.raises(ValueError, match=r"mode=timestamp needs timestamp\.column\.name"):
        settings(mode="timestamp")


def test_what_only_one_database_has_is_read_too(engine: Engine) -> None:
    columns = {
        "postgresql": (
            "tags text[], big numeric(60,2), raw bytea",
            "'{a,NULL}', 12345678901234567890123456789012345678.5, '\\x00ff'",
        ),
        "mysql": (
            "tags SET('b', 'a'), big DECIMAL(60,2), raw VARBINARY(9), longer LONGBLOB",
            "'a,b', 12345678901234567890123456789012345678.5, x'00ff', x'00ff'",
        ),
        "sqlite": ("tags TEXT, raw BLOB", "'x', x'00ff'"),
    }
    kinds, values = columns[engine.dialect.name]
    run(engine, "DROP TABLE items")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE items (id INT PRIMARY KEY, {kinds})")
        connection.exec_driver_sql(f"INSERT INTO items VALUES (1, {values})")
    with running(RelationalSource, config(engine, mode="bulk")) as source:
        ((found),) = source.take(1)
    assert found.value["raw"] == b"\x00\xff"
    assert found.value.get("longer", b"\x00\xff") == b"\x00\xff"
    assert found.value["tags"] in ('["a", null]', "b,a", "x")
    big = Decimal("12345678901234567890123456789012345678.50")
    assert found.value.get("big", big) == big


def test_a_value_that_cannot_be_read_is_named(engine: Engine) -> None:
    if engine.dialect.name == "mysql":
        return  # its driver returns such a value as a text
    before_christ, garbage = "'0044-03-15 BC'", "'yesterday'"
    kind, value = "timestamp", garbage if engine.dialect.name == "sqlite" else before_christ
    run(engine, "DROP TABLE items", f"CREATE TABLE items (id INT PRIMARY KEY, at {kind})")
    run(engine, f"INSERT INTO items VALUES (1, {value})")
    with (
        running(RelationalSource, config(engine, mode="bulk")) as source,
        pytest.raises(ConnectError, match="table items has a value that cannot be read"),
    ):
        source.step()


@pytest.mark.parametrize("instant", [True, False], ids=["instant", "wall-clock"])
def test_rows_are_found_whatever_the_servers_zone_is(engine: Engine, instant: bool) -> None:
    if engine.dialect.name == "sqlite":
        return  # it has no zone
    postgres = engine.dialect.name == "postgresql"
    kind = {True: "timestamptz", False: "timestamp"} if postgres else {True: "timestamp", False: "datetime(6)"}
    zone = "ALTER ROLE tests SET timezone = '{}'" if postgres else "SET GLOBAL time_zone = '{}'"
    run(engine, zone.format("<+09>-09" if postgres else "+09:00"))
    engine.dispose()
    try:
        run(engine, "DROP TABLE items", f"CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(9), at {kind[instant]})")
        run(engine, "INSERT INTO items VALUES (1, 'a', CURRENT_TIMESTAMP)")
        (now,) = (dt.datetime.now(dt.UTC),)
        with running(RelationalSource, config(engine, mode="timestamp", timestamp_column_name="at")) as source:
            (found,) = source.take(1)
        beyond = dt.timedelta() if instant else dt.timedelta(hours=9)
        assert abs(found.value["at"] - beyond - now) < dt.timedelta(minutes=2)
    finally:
        run(engine, zone.format("UTC" if postgres else "SYSTEM"))


def test_a_cursor_whose_connection_breaks_in_the_midst_of_its_rows_is_closed(engine: Engine) -> None:
    """psycopg warns of each that is not, and warnings are errors."""
    add(engine, *((key, "a", None) for key in range(50)))
    settings = config(engine, mode="incrementing", incrementing_column_name="id", batch_max_rows="10")
    settings["connection.url"] = settings["connection.url"].replace("psycopg2", "psycopg")
    with suppress(Retriable), running(RelationalSource, settings) as source:
        assert len(source.until(bool)) < 50
        if engine.dialect.name == "postgresql":
            others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            with engine.begin() as connection:
                connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}"))
    assert open_cursors() == []


def test_a_cursor_whose_connection_breaks_before_its_first_row_is_closed(engine: Engine) -> None:
    """SQLAlchemy closes no cursor of a connection that is gone, and psycopg warns of each that is open."""
    if engine.dialect.name != "postgresql":
        return  # the other drivers have cursors that do not warn
    settings = config(engine, mode="incrementing", incrementing_column_name="id")
    settings["connection.url"] = settings["connection.url"].replace("psycopg2", "psycopg")
    waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'DECLARE%'"
    with running(RelationalSource, settings) as source, engine.connect() as other, ThreadPoolExecutor(1) as reader:
        assert source.step() == [], "the table is known before it is locked"
        other.execute(text("LOCK TABLE items IN ACCESS EXCLUSIVE MODE"))
        read = reader.submit(source.until, bool)
        eventually(lambda: rows(engine, f"SELECT pg_terminate_backend(pid) {waiting}"))
        with suppress(Retriable):
            read.result(timeout=60)
        del read
    assert open_cursors() == []


@pytest.mark.parametrize("is_broken", [False, True], ids=["ended", "broken"])
def test_the_rest_of_a_table_is_not_read_when_a_task_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_broken: bool
) -> None:
    """PyMySQL reads it when a cursor is closed or deleted, however much it is, and fails without a connection."""
    if engine.dialect.name != "mysql":
        return  # the other drivers ask for rows, or have all of them
    run(engine, "DROP TABLE items", "CREATE TABLE items (id INT PRIMARY KEY, name LONGTEXT)")
    run(engine, f"INSERT INTO items SELECT seq, REPEAT('x', 20000) FROM {up_to(900)}")
    writing = "SELECT id FROM information_schema.processlist WHERE info LIKE '%items%' AND id <> CONNECTION_ID()"
    settings = config(engine, mode="incrementing", incrementing_column_name="id", batch_max_rows="10")
    driver = Driver(monkeypatch)
    with suppress(Retriable), running(RelationalSource, settings) as source:
        source.until(bool)
        ((reader,),) = rows(engine, writing)
        if is_broken:
            run(engine, f"KILL {reader}")
            source.take(900)
    del source
    gc.collect()
    assert driver.failures == []
    assert driver.packets < 900
    assert [each for each in caplog.messages if "rror closing" in each] == [], "by SQLAlchemy, with a stack"


def open_cursors() -> list[str]:
    """The warnings of what nobody refers to any longer."""
    with catch_warnings(record=True) as caught:
        gc.collect()
    return [str(each.message) for each in caught if "ursor" in str(each.message)]
