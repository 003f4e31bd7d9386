"""The relational sink against SQLite, PostgreSQL and MariaDB: what is in the tables after it was told what."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text

from ottla.connect import schema as connect
from ottla.connect.api import BadRecord, ConfigError, ConnectError, TopicPartition
from ottla.connect.connectors.relational.sink import RelationalSink
from ottla.connect.schema import Schema, struct
from tests.connect.shipped.databases import rows
from tests.connect.shipped.relational_sinks import (
    DAY_US,
    ITEMS,
    KEY,
    SOURCE,
    gone,
    item,
    items,
    sink,
    upserting,
)
from tests.support.connect_tasks import TaskContext, sink_record


def test_the_last_row_of_a_key_counts_and_a_null_deletes(engine: Engine) -> None:
    into = upserting(engine)
    into.write(
        [item(0, 1, "one", "1.10"), item(1, 2, "two"), item(2, 1, "uno", "1.20"), gone(3, 2), item(4, 3, "a\tb\\\n")]
    )
    into.write([gone(5, 1), item(6, 1, "again", "-0.05"), item(7, 4), gone(8, 4), gone(9, 99)])
    found = [(key, name, str(price) if price is not None else None) for key, name, price in items(engine)]
    assert found == [(1, "again", "-0.05"), (3, "a\tb\\\n", None)]


def test_what_was_written_is_not_written_again_after_a_crash(engine: Engine) -> None:
    settings = {"auto_create": "true"}
    into = sink(engine, **settings)
    into.write([item(0, 1, "a"), item(1, 1, "b")])
    into.close()
    again = sink(engine, **settings)
    assert again.positions([ITEMS, TopicPartition("items", 1)]) == {ITEMS: 2}
    again.write([item(1, 1, "b"), item(2, 1, "c")])
    assert rows(engine, "SELECT name FROM items ORDER BY name") == [("a",), ("b",), ("c",)]


def test_rows_and_offsets_change_together_or_not_at_all(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, price NUMERIC(9,2))")
        )
    into = sink(engine)
    into.write([item(0, 1, "one")])
    with pytest.raises(BadRecord, match="does not take the record at items-0, offset 2") as caught:
        into.write([item(1, 2, "two"), item(2, 3, None), item(3, 4, "four")])
    assert caught.value.record.offset == 2  # type: ignore[attr-defined]
    assert items(engine) == [(1, "one", None)]
    assert into.positions([ITEMS]) == {ITEMS: 1}
    into.write([item(1, 2, "two"), item(3, 4, "four")])
    assert [row[0] for row in items(engine)] == [1, 2, 4]
    assert into.positions([ITEMS]) == {ITEMS: 4}


def test_a_key_that_goes_makes_no_table(engine: Engine) -> None:
    value = struct("items.Value", id=connect.INT32, name=connect.STRING)
    into = upserting(engine, auto_evolve="true")
    into.write([gone(0, 1)])
    into.write([item(1, 1), gone(2, 1)])
    into.write([sink_record("items", 3, {"id": 1, "name": "x"}, key={"id": 1}, key_schema=KEY, value_schema=value)])
    assert rows(engine, "SELECT * FROM items") == [(1, "x")]
    assert into.positions([ITEMS]) == {ITEMS: 4}
    with pytest.raises(ConnectError, match="table items2 is not there"):
        upserting(engine, auto_create="false", table_name_format="items2").write([gone(4, 1)])


def test_numbers_keep_their_fractions_or_are_refused(engine: Engine) -> None:
    def plain(offset: int, number: Any) -> Any:
        return sink_record("items", offset, {"n": number}, key={"id": offset})

    into = upserting(engine)
    into.write([plain(0, 1), plain(1, 2 if engine.dialect.name == "postgresql" else 2.0)])
    if engine.dialect.name == "sqlite":  # whose columns take any number as it is
        into.write([plain(2, 1.5), plain(3, 2.7)])
        assert rows(engine, "SELECT n FROM items ORDER BY id") == [(1,), (2,), (1.5,), (2.7,)]
        return
    for value in (1.5, "2.7", 1e-30):
        for batch in ([plain(2, value)], [plain(2, 3), plain(3, value), plain(4, 4)]):
            with pytest.raises(BadRecord, match=f"items-0, offset {2 + (len(batch) > 1)}: .*(whole numbers|bigint)"):
                into.write(batch)
    assert rows(engine, "SELECT n FROM items ORDER BY id") == [(1,), (2,)]


def test_keys_that_differ_are_rows_that_differ(engine: Engine) -> None:
    def named(offset: int, key: str, value: Any) -> Any:
        return sink_record("items", offset, value, key={"k": key}, partition=0)

    context = TaskContext()
    into = upserting(engine, context)
    keys = ["a", "A", "a ", "á", "ß", "ss"]
    into.write([named(offset, key, {"n": offset}) for offset, key in enumerate(keys)])
    into.write([named(9, "A", None), named(10, "a ", {"n": 10})])
    found = [(key, 10 if key == "a " else offset) for offset, key in enumerate(keys) if key != "A"]
    assert sorted(rows(engine, "SELECT k, n FROM items")) == sorted(found)
    assert context.warning is None


def test_a_key_column_that_holds_different_keys_for_the_same_is_warned_of(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE items (k VARCHAR(20) PRIMARY KEY, n INT)"))
    context = TaskContext()
    upserting(engine, context).write([sink_record("items", 0, {"n": 1}, key={"k": "a"})])
    if engine.dialect.name in ("mysql", "mariadb"):
        assert "table items compares its key column k by utf8mb4_general_ci" in str(context.warning)
    else:
        assert context.warning is None


def test_names_that_the_database_does_not_hold_are_one_sentence(engine: Engine) -> None:
    long = "a.topic.with.a.name.longer.than.postgresql.has".replace(".", "_") * 2
    record = sink_record(long, 0, {"id": 1}, key={"id": 1}, key_schema=KEY, value_schema=KEY)
    both = {"id": 1, "name": "a", "NAME": "b"}
    schema = struct("v", id=connect.INT32, name=connect.STRING, NAME=connect.STRING)
    cased = sink_record("items", 0, both, key={"id": 1}, key_schema=KEY, value_schema=schema)
    into = upserting(engine)
    if engine.dialect.name == "sqlite":
        into.write([record])
    else:
        with pytest.raises(ConnectError, match=f"table {long} cannot be made: names have at most 6[34]"):
            into.write([record])
    if engine.dialect.name == "postgresql":
        upserting(engine).write([cased])
        assert rows(engine, 'SELECT id, name, "NAME" FROM items') == [(1, "a", "b")]
    else:
        with pytest.raises(ConnectError, match="cannot have both columns name and NAME, which differ in case alone"):
            upserting(engine).write([cased])


def test_columns_are_added_when_allowed(engine: Engine) -> None:
    upserting(engine).write([item(0, 1, "one")])
    wider = struct(
        "items.Value", id=connect.INT32, name=connect.STRING.as_optional(), note=connect.STRING.as_optional()
    )
    record = sink_record(
        "items", 1, {"id": 1, "name": "x", "note": "n"}, key={"id": 1}, key_schema=KEY, value_schema=wider
    )
    with pytest.raises(ConnectError, match=r"table items has no column note: add it, or set auto\.evolve=true"):
        upserting(engine).write([record])
    upserting(engine, auto_evolve="true").write([record])
    assert rows(engine, "SELECT name, note FROM items") == [("x", "n")]
    strict = struct("items.Value", id=connect.INT32, must=connect.INT32)
    needed = sink_record("items", 2, {"id": 1, "must": 1}, key={"id": 1}, key_schema=KEY, value_schema=strict)
    with pytest.raises(ConnectError, match="has no column must, and one that may not be null"):
        upserting(engine, auto_evolve="true").write([needed])


def test_columns_that_may_not_be_null_are_added_with_their_defaults(engine: Engine) -> None:
    upserting(engine).write([item(0, 1)])
    fields = {
        "id": connect.INT32,
        "number": Schema(connect.Type.INT32, default=7, has_default=True),
        "yes": Schema(connect.Type.BOOLEAN, default=True, has_default=True),
        "note": Schema(connect.Type.STRING, default="it's", has_default=True),
        "sum": replace(connect.decimal(2), default=Decimal("1.25"), has_default=True),
        "day": Schema(connect.Type.INT32, name="io.debezium.time.Date", default=19782, has_default=True),
        "until": Schema(connect.Type.INT64, name="io.debezium.time.MicroTime", default=DAY_US, has_default=True),
    }
    value = {"id": 2, "number": 1, "yes": False, "note": "", "sum": Decimal(0), "day": 0, "until": 0}
    wider = connect.struct_of("items.Value", fields)
    record = sink_record("items", 1, value, key={"id": 2}, key_schema=KEY, value_schema=wider)
    upserting(engine, auto_evolve="true").write([record])
    (found,) = rows(engine, "SELECT number, yes, note, sum, day, CAST(until AS CHAR(8)) FROM items WHERE id = 1")
    assert (found[0], bool(found[1]), found[2], Decimal(str(found[3])), str(found[4]), str(found[5])[:8]) == (
        7, True, "it's", Decimal("1.25"), "2024-02-29", "24:00:00"
    )  # fmt: skip


def test_times_without_a_zone_are_utcs_in_columns_that_have_one(engine: Engine) -> None:
    kind_of = {"postgresql": "TIMESTAMPTZ", "mysql": "TIMESTAMP", "mariadb": "TIMESTAMP"}.get(engine.dialect.name)
    zone = {"postgresql": "ALTER ROLE tests SET timezone = 'Asia/Tokyo'", None: ""}.get(
        engine.dialect.name if kind_of else None, "SET GLOBAL time_zone = '+09:00'"
    )
    if kind_of is None:
        return  # SQLite's times have none
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE items (id INT PRIMARY KEY, at {kind_of} NULL)"))
        connection.execute(text(zone))
    try:
        kinds = struct("k", id=connect.INT32, at=connect.timestamp())
        at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
        upserting(engine).write(
            [sink_record("items", 0, {"id": 1, "at": at}, key={"id": 1}, key_schema=KEY, value_schema=kinds)]
        )
        seconds = {"postgresql": "extract(epoch FROM at)"}.get(engine.dialect.name, "unix_timestamp(at)")
        ((found,),) = rows(engine, f"SELECT {seconds} FROM items")
        assert int(found) == at.timestamp()  # type: ignore[call-overload]
    finally:
        with engine.begin() as connection:
            connection.execute(text(zone.replace("= 'Asia/Tokyo'", "= 'UTC'").replace("+09:00", "+00:00")))


def test_change_events_become_the_rows_that_they_speak_of(engine: Engine) -> None:
    fields: dict[str, Schema] = {
        "id": connect.INT32,
        "day": Schema(connect.Type.INT32, optional=True, name="io.debezium.time.Date"),
        "at": Schema(connect.Type.INT64, optional=True, name="io.debezium.time.MicroTimestamp"),
        "tags": connect.array(connect.STRING, optional=True),
    }
    row = connect.struct_of("shop.items.Value", fields, optional=True)
    envelope = struct("shop.items.Envelope", before=row, after=row, source=SOURCE, op=connect.STRING)

    def event(offset: int, op: str, before: Any, after: Any) -> Any:
        key = {"id": (after or before)["id"]}
        value = {"before": before, "after": after, "source": {"connector": "postgresql"}, "op": op}
        return sink_record("items", offset, value, key=key, key_schema=KEY, value_schema=envelope)

    first = {"id": 1, "day": 19782, "at": 1_700_000_000_000_001, "tags": ["a", "b"]}
    into = upserting(engine)
    into.write([event(0, "r", None, first), event(1, "c", None, {"id": 2}), event(2, "d", {"id": 2}, None), gone(3, 2)])
    with engine.connect() as connection:
        found = connection.execute(text("SELECT id, tags FROM items")).all()
        assert len(found) == 1
        assert found[0].tags in (["a", "b"], '["a", "b"]')
        day, at = connection.execute(text("SELECT CAST(day AS CHAR(10)), CAST(at AS CHAR(26)) FROM items")).one()
        assert (str(day), str(at)) == ("2024-02-29", "2023-11-14 22:13:20.000001")


def test_records_without_schema_and_keys_from_the_log(engine: Engine) -> None:
    into = sink(engine, auto_create="true", pk_mode="kafka")
    into.write([sink_record("items", 5, {"a": 1, "b": "x", "c": [1]}), sink_record("items", 6, {"a": 2, "b": "y"})])
    found = rows(engine, "SELECT __connect_topic, __connect_offset, a, b FROM items ORDER BY a")
    assert found == [("items", 5, 1, "x"), ("items", 6, 2, "y")]


def test_a_null_without_a_schema_takes_the_place_of_a_value(engine: Engine) -> None:
    def event(offset: int, **after: Any) -> Any:
        change = {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": "u"}
        return sink_record("items", offset, change, key={"id": after["id"]})

    into = upserting(engine, auto_evolve="true")
    into.write([event(0, id=1, a="x", b=None, n=5), event(1, id=2, a=None, b=None, n=6)])
    into.write([event(2, id=1, a=None, b=None, n=7)])
    assert rows(engine, "SELECT id, a, n FROM items ORDER BY id") == [(1, None, 7), (2, None, 6)]
    into.write([event(3, id=1, a=None, b=None, n=8), event(4, id=2, a="y", b=1, n=9)])
    assert rows(engine, "SELECT id, a, b, n FROM items ORDER BY id") == [(1, None, None, 8), (2, "y", 1, 9)]


def test_decimals_are_changed_and_are_keys_whatever_the_database(engine: Engine) -> None:
    upserting(engine).write([item(0, 1, "one", "1.25")])
    upserting(engine, insert_mode="update").write([item(1, 1, "uno", "1.50")])
    assert [Decimal(str(price)) for _, _, price in items(engine)] == [Decimal("1.50")]
    sums = struct("k", sum=connect.decimal(2))
    into = upserting(engine, table_name_format="sums", offset_table="")
    for key in ("1.25", "2.50"):
        value, value_schema = {"name": "x"}, struct("v", name=connect.STRING)
        record = sink_record("items", 2, value, key={"sum": Decimal(key)}, key_schema=sums, value_schema=value_schema)
        into.write([record])
    into.write([sink_record("items", 3, None, key={"sum": Decimal("1.25")}, key_schema=sums)])
    assert [Decimal(str(key)) for (key,) in rows(engine, "SELECT sum FROM sums")] == [Decimal("2.50")]


def test_only_rows_that_are_there_are_updated(engine: Engine) -> None:
    upserting(engine).write([item(0, 1, "one")])
    upserting(engine, insert_mode="update").write([item(1, 1, "uno"), item(2, 2, "dos")])
    assert items(engine) == [(1, "uno", None)]


def test_one_sentence_says_what_is_wrong(engine: Engine) -> None:
    with pytest.raises(ConnectError, match="table items is not there: make it, or set auto"):
        sink(engine).write([item(0, 1)])
    settings = RelationalSink.settings_model(**{"connection.url": "nothing://x"})
    with pytest.raises(ConfigError, match=r"connection\.url is no URL of a database"):
        RelationalSink.check(settings, TaskContext())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"delete\.enabled needs pk\.mode=record_key"):
        RelationalSink.settings_model(**{"connection.url": "sqlite://", "delete.enabled": "true"})


def test_times_and_bytes_come_through(engine: Engine) -> None:
    kinds = struct(
        "k", id=connect.INT32, at=connect.timestamp(), day=connect.date(), raw=connect.BYTES, yes=connect.BOOLEAN
    )
    at = dt.datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=dt.UTC)
    value = {"id": 1, "at": at, "day": at.date(), "raw": b"\x00\\\xff", "yes": True}
    into = sink(engine, auto_create="true", insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    into.write([sink_record("items", 0, value, value_schema=kinds)])
    ((raw, yes),) = rows(engine, "SELECT raw, yes FROM items")
    assert (bytes(raw), bool(yes)) == (b"\x00\\\xff", True)  # type: ignore[call-overload]
    ((when,),) = rows(engine, "SELECT CAST(at AS CHAR(26)) FROM items")
    assert str(when).strip().rstrip("0") == "2024-02-29 12:00:00.005"


PLACEHOLDER = "__debezium_unavailable_value"
NOT_SENT = (PLACEHOLDER, PLACEHOLDER, PLACEHOLDER.encode(), [PLACEHOLDER])
LONG = connect.struct_of(
    "shop.items.Value",
    {
        "id": connect.INT32,
        "note": connect.STRING,
        "doc": Schema(connect.Type.STRING, optional=True, name="io.debezium.data.Json"),
        "raw": connect.BYTES.as_optional(),
        "tags": connect.array(connect.STRING, optional=True),
        "n": connect.INT32.as_optional(),
    },
    optional=True,
)
CHANGE = struct("shop.items.Envelope", before=LONG, after=LONG, source=SOURCE, op=connect.STRING)


def change(offset: int, op: str, key: int, *after: Any, schema: Schema | None = CHANGE) -> Any:
    value = {
        "before": None,
        "after": dict(zip(LONG.by_name, (key, *after), strict=True)),
        "source": {"connector": "postgresql"},
        "op": op,
    }
    return sink_record("items", offset, value, key={"id": key}, key_schema=KEY, value_schema=schema)


@pytest.mark.parametrize("schema", [CHANGE, None], ids=["schema", "none"])
def test_what_a_change_event_does_not_have_stays_as_it_is(engine: Engine, schema: Schema | None) -> None:
    upserting(engine).write([change(0, "c", 7, "x", "{}", b"", [], 0)])  # makes the table
    into = upserting(engine)
    into.write([change(1, "c", 1, "long", '{"a": 1}', b"raw", ["x"], 0, schema=schema)])
    into.write([change(2, "u", 1, *NOT_SENT, 1, schema=schema), change(3, "u", 1, "new", *NOT_SENT[1:], 2)])
    with engine.connect() as connection:
        row = connection.execute(text("SELECT note, doc, raw, tags, n FROM items WHERE id = 1")).one()
    assert (row.note, bytes(row.raw), row.n) == ("new", b"raw", 2)
    assert row.doc in ({"a": 1}, '{"a": 1}')
    assert row.tags in (["x"], '["x"]')
    into.write([change(4, "u", 2, "new", *NOT_SENT[1:], 3, schema=schema)])
    assert rows(engine, "SELECT note, doc, raw, tags, n FROM items WHERE id = 2") == [("new", None, None, None, 3)]
    with pytest.raises(BadRecord, match="items-0, offset 5"):  # of a row that is not there nobody knows the note
        into.write([change(5, "u", 3, *NOT_SENT, 1, schema=schema)])


def test_digits_are_kept_however_many_there_are(engine: Engine) -> None:
    number = 123456789012345678901234567890123456789012
    variable = Schema(
        connect.Type.STRUCT,
        name="io.debezium.data.VariableScaleDecimal",
        fields=(connect.Field("scale", connect.INT32), connect.Field("value", connect.BYTES)),
    )
    value = {"id": 1, "price": {"scale": 2, "value": number.to_bytes(20, "big")}}
    kinds = struct("k", id=connect.INT32, price=variable)
    upserting(engine).write([sink_record("items", 0, value, key={"id": 1}, key_schema=KEY, value_schema=kinds)])
    ((price,),) = rows(engine, "SELECT price FROM items")
    assert Decimal(str(price)) == Decimal("1234567890123456789012345678901234567890.12")
