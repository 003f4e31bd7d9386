"""Records that a database does not take: each is rejected by itself, and once."""

from typing import Any

import pytest
from sqlalchemy import Engine, text

from ottla.connect import schema as connect
from ottla.connect.api import BadRecord, Retriable
from ottla.connect.schema import Schema, struct
from tests.connect.shipped.databases import rows
from tests.connect.shipped.relational_sinks import DAY_US, ITEMS, KEY, gone, item, items, kind, sink, upserting
from tests.support.connect_tasks import TaskContext, sink_record


def test_what_fits_no_row_is_rejected_by_itself(engine: Engine) -> None:
    context = TaskContext()
    into = upserting(engine, context, delete_enabled="false")
    into.write([item(0, 1, "one"), gone(1, 1), sink_record("items", 2, "text"), item(3, 2, "two")])
    assert [row[0] for row in items(engine)] == [1, 2]
    reasons = [reason for _, reason in context.rejected]
    assert "items-0, offset 1, has no value: set delete.enabled=true" in reasons[0]
    assert "has a str for a value" in reasons[1]
    assert into.positions([ITEMS]) == {ITEMS: 4}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (connect.STRING.as_optional(), "half of a \ud800 pair"),
        (kind("MicroTimestamp", connect.Type.INT64), 1 << 62),
        (kind("ZonedTimestamp", connect.Type.STRING), "yesterday or so"),
        (kind("Date", connect.Type.INT32), 10_000_000),
    ],
    ids=["surrogate", "year", "text", "day"],
)
def test_a_value_that_no_column_holds_is_one_bad_record(engine: Engine, schema: Schema, value: Any) -> None:
    context = TaskContext()
    into = upserting(engine, context)
    kinds = struct("k", id=connect.INT32, what=schema)
    keys = ({"id": n} for n in range(3))
    records = [
        sink_record("items", n, key | {"what": value if n == 1 else None}, key=key, key_schema=KEY, value_schema=kinds)
        for n, key in enumerate(keys)
    ]
    refused: list[object] = []
    try:
        into.write(records)
    except BadRecord as bad:  # by the database or its driver
        refused.append(bad.record)
        into.write([records[0], records[2]])
    refused += [record for record, _ in context.rejected]
    assert [each is records[1] for each in refused] == [True]
    assert rows(engine, "SELECT id FROM items ORDER BY id") == [(0,), (2,)]


LONGEST_US = ((838 * 60 + 59) * 60 + 59) * 1_000_000


@pytest.mark.parametrize(
    ("us", "text_of", "takes_it"),
    [
        (DAY_US, "24:00:00", ("postgresql", "mysql", "mariadb")),
        (LONGEST_US, "838:59:59", ("mysql", "mariadb")),
        (-1_800_000_000, "-00:30:00", ("mysql", "mariadb")),
    ],
)
def test_a_time_beyond_a_day_is_itself_or_a_bad_record(
    engine: Engine, us: int, text_of: str, takes_it: tuple[str, ...]
) -> None:
    kinds = struct("k", id=connect.INT32, at=kind("MicroTime", connect.Type.INT64))
    records = [
        sink_record("items", n, {"id": n, "at": at}, key={"id": n}, key_schema=KEY, value_schema=kinds)
        for n, at in enumerate((1_000_000, us, 2_000_000))
    ]
    into = upserting(engine)
    if engine.dialect.name in takes_it:
        into.write(records)
        ((found,),) = rows(engine, "SELECT CAST(at AS CHAR(9)) FROM items WHERE id = 1")
        assert str(found).strip().startswith(text_of)
    else:
        with pytest.raises(BadRecord, match="items-0, offset 1") as caught:
            into.write(records)
        assert caught.value.record is records.pop(1)
        into.write(records)
        assert rows(engine, "SELECT id FROM items ORDER BY id") == [(0,), (2,)]


def test_what_a_constraint_or_a_column_refuses_is_one_bad_record(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE items (id INT PRIMARY KEY, name DATE, price NUMERIC(9,2), CHECK (id < 10))")
        )
    into = upserting(engine)
    with pytest.raises(BadRecord, match="items-0, offset 1"):
        into.write([item(0, 1), item(1, 11), item(2, 3)])
    with pytest.raises(BadRecord, match="items-0, offset 1"):
        into.write([item(0, 1), item(1, 2, "no date"), item(2, 3)])


def test_what_is_rejected_is_rejected_once_however_often_its_batch_is_written(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL, price NUMERIC(9))"))
    context = TaskContext()
    into = upserting(engine, context)
    batch = [sink_record("items", 0, "text"), *(item(n, n, "x") for n in range(1, 20)), item(20, 20)]
    with pytest.raises(BadRecord, match="items-0, offset 20"):
        into.write(batch)
    into.write(batch[:-1])
    assert [record.offset for record, _ in context.rejected] == [0]


def test_nothing_is_rejected_again_or_written_again_because_a_later_transaction_failed(engine: Engine) -> None:
    for more in ({}, {"offset_table": ""}):
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS items"))
            connection.execute(text("CREATE TABLE items (id INT, name VARCHAR(9) NOT NULL, price NUMERIC(9))"))
        context = TaskContext()
        into = sink(engine, context, batch_size="2", **more)
        into.alter_offsets(None)
        into.positions([ITEMS])
        batch = [item(0, 0, "x"), sink_record("items", 1, "text"), item(2, 2, "x"), item(3, 3), item(4, 4, "x")]
        with pytest.raises(BadRecord, match="items-0, offset 3"):
            into.write(batch)
        into.write(batch[:3] + batch[4:])
        assert rows(engine, "SELECT id FROM items ORDER BY id") == [(0,), (2,), (4,)], more
        assert [record.offset for record, _ in context.rejected] == [1], more
        into.close()


def test_a_refusal_that_does_not_come_again_blames_no_record(engine: Engine) -> None:
    into = upserting(engine)
    into.write([item(0, 1)])
    move = into._offsets.move
    races = ["INSERT INTO items (id) VALUES (1)"]

    def raced(connection: Any, ends: Any) -> Any:
        while races:  # as when another task has just noted its first offset
            connection.execute(text(races.pop()))
        return move(connection, ends)

    into._offsets.move = raced
    with pytest.raises(Retriable, match="but not when it was tried again"):
        into.write([item(1, 2), item(2, 3)])
    into.write([item(1, 2), item(2, 3)])
    assert [row[0] for row in items(engine)] == [1, 2, 3]


def test_a_constraint_that_is_looked_at_when_all_is_written_blames_the_right_record(engine: Engine) -> None:
    if engine.dialect.name != "postgresql":
        return  # the others have none that wait
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE kinds (id INT PRIMARY KEY)"))
        connection.execute(
            text(
                "CREATE TABLE items (id INT PRIMARY KEY REFERENCES kinds DEFERRABLE INITIALLY DEFERRED, "
                "name TEXT, price NUMERIC)"
            )
        )
        connection.execute(text("INSERT INTO kinds VALUES (1), (3)"))
    with pytest.raises(BadRecord, match="items-0, offset 1"):
        upserting(engine).write([item(0, 1), item(1, 2), item(2, 3)])
