"""The relational sink's way into PostgreSQL: COPY, and the temporary tables that stay with its connection."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text

from ottla.connect import schema as connect
from ottla.connect.api import BadRecord, TopicPartition
from ottla.connect.connectors.relational.sink import RelationalSink
from ottla.connect.schema import Schema, struct
from tests.connect.shipped.databases import emptied, rows
from tests.support.connect_tasks import opened, sink_record
from tests.support.postgres import Postgres

ITEMS = TopicPartition("items", 0)
KEY = struct("k", id=connect.INT64)
VALUE = struct("v", id=connect.INT64, name=connect.STRING.as_optional())
WIDER = struct("v", id=connect.INT64, name=connect.STRING.as_optional(), more=connect.STRING.as_optional())
UPSERT = {
    "insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true", "auto.create": "true",
    "auto.evolve": "true",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as found:
        yield found


@pytest.fixture(params=["psycopg2", "psycopg"])
def engine(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Engine]:
    found = emptied(server.url.replace("+psycopg:", f"+{request.param}:"))
    yield found
    found.dispose()


@pytest.fixture
def sink(engine: Engine) -> Iterator[Any]:
    made = opened(RelationalSink, {"connection.url": engine.url.render_as_string(hide_password=False), **UPSERT}, ITEMS)
    made.positions([ITEMS])
    yield made
    made.close()


def item(offset: int, key: int, name: str | None, *more: str) -> Any:
    schema: Schema = WIDER if more else VALUE
    value = {"id": key, "name": name, **({"more": more[0]} if more else {})}
    return sink_record("items", offset, value, key={"id": key}, key_schema=KEY, value_schema=schema)


def gone(offset: int, key: int) -> Any:
    return sink_record("items", offset, None, key={"id": key}, key_schema=KEY)


def test_steps_of_one_table_do_not_see_each_others_rows(engine: Engine, sink: Any) -> None:
    temporary = "SELECT count(*) FROM pg_class WHERE relname LIKE 'ottla_rows%'"
    counts = []
    for first in (0, 100, 200):
        sink.write([
            item(first, 1, "a"), gone(first + 1, 4), item(first + 2, 2, "b", "wide"), item(first + 3, 1, "c"),
            gone(first + 4, 2), item(first + 5, 3, "d", "wide"), item(first + 6, 4, "e"), gone(first + 7, 9),
        ])  # fmt: skip
        assert rows(engine, "SELECT id, name, more FROM items ORDER BY id") == [
            (1, "c", None), (3, "d", "wide"), (4, "e", None)
        ]  # fmt: skip
        counts += rows(engine, temporary)
    assert len(set(counts)) == 1, "they are made once, not for each transaction"


def test_temporary_tables_of_many_tables_go_when_they_are_not_used(engine: Engine, sink: Any) -> None:
    def kept() -> object:
        ((count,),) = rows(engine, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ottla_rows%' AND relkind = 'r'")
        return count

    many = [
        sink_record(f"items{n}", 0, {"id": n, "name": "a"}, key={"id": n}, key_schema=KEY, value_schema=VALUE)
        for n in range(40)
    ]
    for _ in range(2):
        sink.alter_offsets(None)
        sink.positions([ITEMS])
        sink.write(many)
        assert kept() == 40, "those of a batch stay for the next one like it"
    sink.write([item(0, 0, "a")])
    with pytest.raises(BadRecord):
        sink.write([item(1, 1, "a\x00b")])
    for offset in (2, 3):
        sink.write([item(offset, offset, "a")])
        assert kept() == 16
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(0,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["citext", "char(4)", "text COLLATE nocase"])
def test_keys_that_are_the_same_to_postgresql_alone(engine: Engine, sink: Any, kind: str) -> None:
    names = struct("k", name=connect.STRING)
    other = "foo " if kind == "char(4)" else "FOO"

    def named(offset: int, name: str, n: int | None) -> Any:
        value = None if n is None else {"n": n}
        return sink_record("items", offset, value, key={"name": name}, key_schema=names, value_schema=numbers)

    numbers = struct("v", n=connect.INT32)
    with engine.begin() as connection:
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS citext"))
        nocase = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        connection.execute(text(f"CREATE COLLATION IF NOT EXISTS nocase {nocase}"))
        connection.execute(text(f"CREATE TABLE items (name {kind} PRIMARY KEY, n int)"))
    sink.write([named(0, "foo", 0), named(1, other, 1), named(2, "bar", 2), named(3, "foo", 3)])
    found = "SELECT trim(name::text), n FROM items ORDER BY n"
    assert rows(engine, found) == [("bar", 2), ("foo", 3)]
    sink.write([named(4, "foo", 4), named(5, other, None), named(6, "bar", None), named(7, "bar", 7)])
    assert rows(engine, found) == [("bar", 7)]


def test_texts_come_through_whatever_is_in_them(engine: Engine, sink: Any) -> None:
    texts = ["", "\\N", "a\tb", "\\.", "\r\n", "\\", "é\u2028", None, "None"]
    sink.write([item(n, n, each) for n, each in enumerate(texts)])
    assert [name for (name,) in rows(engine, "SELECT name FROM items ORDER BY id")] == texts


@pytest.mark.parametrize("wrong", ["a\x00b", "\ud800"])
def test_a_text_that_postgresql_has_not_is_named_amid_others(engine: Engine, sink: Any, wrong: str) -> None:
    batch = [item(n, n, "good") for n in range(7)]
    batch[4] = item(4, 4, wrong)
    with pytest.raises(BadRecord, match="does not take the record at items-0, offset 4") as caught:
        sink.write(batch)
    assert caught.value.record is batch.pop(4)
    sink.write(batch)
    assert rows(engine, "SELECT count(*) FROM items") == [(6,)]


def test_a_column_that_somebody_changed_is_written_as_it_is_now(engine: Engine, sink: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE items (id int PRIMARY KEY, name text)"))
    sink.write([item(0, 1, "a")])
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE items ALTER COLUMN id TYPE bigint"))
    sink.write([item(1, 1 << 40, "b")])
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(1,), (1 << 40,)]
    assert sink.positions([ITEMS]) == {ITEMS: 2}


def test_digits_that_a_column_got_are_written_though_it_did_not_refuse_others_before(engine: Engine, sink: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE items (id int PRIMARY KEY, n numeric(10,2), at timestamp(0), r real)"))
    kinds = struct("v", id=connect.INT64, n=connect.decimal(4), at=connect.timestamp(), r=connect.FLOAT64)

    def written(offset: int) -> object:
        at = dt.datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=dt.UTC)
        value = {"id": 1, "n": Decimal("1.2345"), "at": at, "r": 1.123456789012}
        sink.write([sink_record("items", offset, value, key={"id": 1}, key_schema=KEY, value_schema=kinds)])
        return rows(engine, "SELECT n::text, extract(microseconds FROM at)::int, r::text FROM items")

    assert written(0) == [("1.23", 0, "1.1234568")]
    with engine.begin() as connection:
        connection.execute(
            text(
                "ALTER TABLE items ALTER n TYPE numeric(12,4), ALTER at TYPE timestamp(6), "
                "ALTER r TYPE double precision"
            )
        )
    assert written(1) == [("1.2345", 5000, "1.123456789012")]
