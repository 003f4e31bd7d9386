"""Change events as our own connector writes them, decoded without Spark: types, altered tables, what is refused."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.support.change_events import AT_MS, UNSENT, CapturedTable, Event, numeric
from tests.support.schema_registry import SchemaRegistry

from ottla.pipeline.rows.avro_events import written_as
from ottla.pipeline.rows.captured import _is_newer
from ottla.pipeline.rows.change_events import UNKNOWN, ChangeEvents, Described, describe, event_schema
from ottla.pipeline.rows.change_types import columns_of
from ottla.pipeline.rows.python_decoding import decode_array
from ottla.registry import client
from ottla.registry.client import Registry, frame, registry
from ottla.registry.undecodable import Undecodable


def wall(*parts: int) -> datetime:
    """A wall clock's time, without a zone."""
    return datetime(*parts)  # type: ignore[arg-type] # noqa: DTZ001


TYPES: list[tuple[str, str, int, str, str, Any]] = [
    # column, PostgreSQL's type, modifier, its text, Spark's type, value
    ("yes", "bool", -1, "t", "boolean", True),
    ("small", "int2", -1, "-7", "smallint", -7),
    ("whole", "int4", -1, "7", "int", 7),
    ("big", "int8", -1, "9007199254740993", "bigint", 2**53 + 1),
    ("real", "float4", -1, "1.5", "float", 1.5),
    ("double", "float8", -1, "0.1", "double", 0.1),
    ("infinite", "float8", -1, "-Infinity", "double", float("-inf")),
    ("price", "numeric", numeric(12, 2), "-1234567890.05", "decimal(12,2)", Decimal("-1234567890.05")),
    ("round", "numeric", numeric(3, -2), "12300", "decimal(5,0)", Decimal("12300")),
    ("digits", "numeric", numeric(40, 2), "1.25", "string", "1.25"),
    ("any", "numeric", -1, "-0.000125", "string", "-0.000125"),
    ("money", "money", -1, "$1,234.50", "decimal(38,2)", Decimal("1234.50")),
    ("raw", "bytea", -1, r"\x00ff", "binary", b"\x00\xff"),
    ("bit", "bit", 1, "1", "boolean", True),
    ("name", "text", -1, "Zürich\u0000\U0001f600", "string", "Zürich\u0000\U0001f600"),
    ("document", "json", -1, '{"a": 1}', "string", '{"a": 1}'),
    ("ident", "uuid", -1, "00000000-0000-0000-0000-000000000001", "string", "00000000-0000-0000-0000-000000000001"),
    ("mood", "mood", -1, "ok", "string", "ok"),
    ("day", "date", -1, "1969-12-31", "date", date(1969, 12, 31)),
    ("clock", "time", -1, "23:59:59.25", "string", "23:59:59.25"),
    ("clock_ms", "time", 3, "24:00:00", "string", "24:00:00"),
    ("wall", "timestamp", -1, "2024-02-29 12:00:00.000001", "timestamp_ntz", wall(2024, 2, 29, 12, 0, 0, 1)),
    ("wall_ms", "timestamp", 3, "1969-12-31 23:59:59.5", "timestamp_ntz", wall(1969, 12, 31, 23, 59, 59, 500_000)),
    ("at", "timestamptz", -1, "2024-02-29 12:00:00.25+00", "timestamp", datetime(2024, 2, 29, 12, 0, 0, 250_000, UTC)),
    ("zoned", "timetz", -1, "12:00:00+02", "string", "10:00:00Z"),
    ("span", "interval", -1, "PT1S", "bigint", 1_000_000),
    ("tags", "_text", -1, "{a,NULL}", "array<string>", ["a", None]),
    ("prices", "_numeric", numeric(5, 2), "{1.50}", "array<decimal(5,2)>", [Decimal("1.50")]),
    (
        "place", "point", -1, "(1,2)", "struct<x:double,y:double,wkb:binary,srid:int>",
        {"x": 1.0, "y": 2.0, "wkb": bytes.fromhex("0101000000000000000000f03f0000000000000040"), "srid": None},
    ),
]  # fmt: skip


def newest_columns(events: list[Event]) -> StructType:
    """As a job finds them."""
    found = describe(*events[0])
    assert found is not None
    assert found.schema is not None
    return columns_of(found.schema)


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def decode(wanted: StructType, events: list[Event]) -> list[Any]:
    """Rows, or reasons in their place, of all records with a value."""
    row_type: Any = to_arrow_type(event_schema(wanted), timezone="UTC")
    values = pa.array([value for _, value in events if value is not None], pa.binary())
    decoded = decode_array(values, ChangeEvents(wanted.json()).open(), row_type)
    found: list[Any] = []
    for row, reason in (tuple(each.values()) for each in decoded.to_pylist()):
        found.append(row if reason is None else reason)
    return found


def test_columns_and_values_of_every_type() -> None:
    table = CapturedTable(("id", "int4", -1), *((name, kind, modifier) for name, kind, modifier, *_ in TYPES))
    events = table.created("1", *(text for _, _, _, text, _, _ in TYPES))

    wanted = newest_columns(events)
    (row,) = decode(wanted, events)

    assert {each.name: each.dataType.simpleString() for each in wanted} == {
        "id": "int", **{name: kind for name, _, _, _, kind, _ in TYPES},
    }  # fmt: skip
    assert row == {
        "id": 1, **{name: value for name, *_, value in TYPES},
        "_op": "c", "_ts": datetime.fromtimestamp(AT_MS / 1000, UTC), UNKNOWN: None,
    }  # fmt: skip


def test_nulls_of_every_type() -> None:
    table = CapturedTable(("id", "int4", -1), *((name, kind, modifier) for name, kind, modifier, *_ in TYPES))
    events = table.created("1", *(None for _ in TYPES))
    (row,) = decode(newest_columns(events), events)
    assert {row[name] for name, *_ in TYPES} == {None}


@pytest.mark.parametrize(
    ("settings", "kind", "modifier", "text", "spark_type", "value"),
    [
        ({"decimal_handling_mode": "string"}, "numeric", numeric(9, 2), "1.50", "string", "1.50"),
        ({"decimal_handling_mode": "double"}, "numeric", numeric(9, 2), "1.50", "double", 1.5),
        ({"time_precision_mode": "connect"}, "date", -1, "2024-02-29", "date", date(2024, 2, 29)),
        ({"time_precision_mode": "connect"}, "time", -1, "00:00:01.5", "string", "00:00:01.5"),
        (
            {"time_precision_mode": "connect"}, "timestamp", -1, "2024-02-29 01:00:00", "timestamp_ntz",
            wall(2024, 2, 29, 1),
        ),
        ({"binary_handling_mode": "hex"}, "bytea", -1, r"\x00ff", "string", "00ff"),
    ],
)  # fmt: skip
def test_modes_of_the_connector(
    settings: dict[str, Any], kind: str, modifier: int, text: str, spark_type: str, value: Any
) -> None:
    events = CapturedTable(("id", "int4", -1), ("x", kind, modifier), **settings).created("1", text)
    wanted = newest_columns(events)
    assert wanted["x"].dataType.simpleString() == spark_type
    (row,) = decode(wanted, events)
    assert row["x"] == value


def test_operations_have_the_row_after_the_change_or_before_a_delete() -> None:
    table = CapturedTable(("id", "int4", -1), ("name", "text", -1))
    events = table.created("1", "a", op="r") + table.updated("1", "b") + table.deleted("1", None)
    events += table.updated("3", "c", old=("2", "c"))  # another key: a delete and a creation
    rows = decode(columns(id=IntegerType(), name=StringType()), events)
    assert [(row["_op"], row["id"], row["name"]) for row in rows] == [
        ("r", 1, "a"), ("u", 1, "b"), ("d", 1, None), ("d", 2, "c"), ("c", 3, "c"),
    ]  # fmt: skip
    assert [describe(*event) is None for event in events] == [False, False, False, True, False, True, False]


def test_each_record_is_read_by_its_own_schema_after_the_table_was_altered() -> None:
    before = CapturedTable(("id", "int4", -1), ("price", "numeric", numeric(9, 2)), ("gone", "text", -1))
    then = CapturedTable(("id", "int8", -1), ("price", "numeric", numeric(12, 4)), ("at", "timestamp", 3))
    after = CapturedTable(("id", "int8", -1), ("price", "text", -1), ("at", "timestamp", -1))
    old, middle = before.created("1", "1.50", "x"), then.created("2", "2.5000", "2024-01-01 00:00:00")
    new = after.created(str(2**40), "3.5", "2024-01-01 00:00:00")

    rows = decode(newest_columns(new), old + middle + new + old)
    assert [(row["id"], row["price"], row["at"] and row["at"].year, row[UNKNOWN]) for row in rows] == [
        (1, "1.50", None, "gone"), (2, "2.5000", 2024, None), (2**40, "3.5", 2024, None), (1, "1.50", None, "gone"),
    ]  # fmt: skip
    rows = decode(newest_columns(middle), old + middle)
    assert [row["price"] for row in rows] == [Decimal("1.5"), Decimal("2.5")]


def test_what_does_not_fit_the_columns_is_rejected_and_never_rounded() -> None:
    table = CapturedTable(("id", "int8", -1), ("price", "numeric", numeric(9, 4)), ("day", "date", -1))
    events = table.created(str(2**40), "1.5", None) + table.created("1", "1.5001", None)
    events += table.created("1", "1.50", "infinity")
    found = decode(columns(id=IntegerType(), price=DecimalType(9, 2), day=DateType()), events)
    assert [str(reason).partition(":")[0] for reason in found] == ["wrong type"] * 3
    assert found[2] == "wrong type: 'day' is 2147483647, not DATE"


PLAIN = StructType(
    [
        StructField("id", IntegerType(), nullable=False),
        StructField("price", DecimalType(9, 2)),
        StructField("at", TimestampType()),
        StructField("raw", BinaryType()),
        StructField("tags", ArrayType(StringType())),
        StructField("day", DateType()),
    ]
)


def test_json_without_schemas_is_read_by_given_columns() -> None:
    captured = [("id", "int4", -1), ("price", "numeric", numeric(9, 2)), ("at", "timestamptz", -1)]
    captured += [("raw", "bytea", -1), ("tags", "_text", -1), ("day", "date", -1), ("more", "text", -1)]
    values = ("1", "1.50", "2024-02-29 12:00:00+00", r"\x00ff", "{a,b}", "1970-01-02", "x")
    for mode in ("string", "double"):
        table = CapturedTable(*captured, schemas=False, decimal_handling_mode=mode)
        created, deleted = decode(PLAIN, table.created(*values) + table.deleted("1", *[None] * 6))
        assert (created["price"], created["raw"], created["tags"]) == (Decimal("1.50"), b"\x00\xff", ["a", "b"])
        assert (created["at"], created["day"]) == (datetime(2024, 2, 29, 12, tzinfo=UTC), date(1970, 1, 2))
        assert (created[UNKNOWN], deleted["_op"], deleted["id"], deleted["price"]) == (None, "d", 1, None)
        described = describe(*table.created(*values)[0])
        assert described is not None
        assert described[:3] == (None, ("id",), True)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "not UTF-8"),
        (b"{", "malformed JSON"),
        (b"[1]", "not one JSON object"),
        (b"[" * 100_000, "malformed JSON"),
        (b'{"id": 1, "name": "a"}', "no change event of Debezium: it has no 'op'"),
        (b'{"schema": null, "payload": null}', "no change event of Debezium: it has no 'op'"),
        (
            b'{"schema": {"type": "int32"}, "payload": 1}',
            "no change event of Debezium: its schema has no field 'after'",
        ),
        (b'{"op": "m", "after": {}}', 'unknown operation: op is "m"'),
        (b'{"op": "d", "before": null}', "no row: op is 'd', and 'before' is null"),
        (b'{"op": "c", "after": "{}"}', "no row: op is 'c', and 'after' is \"{}\""),
        (b'{"op": "c", "after": {"name": "a"}}', "missing required field 'id'"),
        (b'{"op": "c", "after": {"id": true}}', "wrong type: 'id' is true, not INT"),
        (b'{"op": "c", "after": {"id": 1.0}}', "wrong type: 'id' is \"1.0\", not INT"),
        (b'{"op": "c", "after": {"id": 1, "price": "AB=="}}', "wrong type: 'price' is \"AB==\", not DECIMAL(9,2)"),
        (b'{"op": "c", "after": {"id": 1, "price": "NaN"}}', "wrong type: 'price' is \"NaN\", not DECIMAL(9,2)"),
        (b'{"op": "c", "after": {"id": 1, "at": 1700000000000}}', "wrong type: 'at' is 1700000000000, not TIMESTAMP"),
        (b'{"op": "c", "after": {"id": 1, "raw": "?"}}', "wrong type: 'raw' is \"?\", not BINARY"),
    ],
)
def test_what_is_no_change_of_a_row_is_rejected_with_the_reason(value: bytes, reason: str) -> None:
    (found,) = decode(PLAIN, [(b"k", value)])
    assert isinstance(found, str)
    assert found.startswith(reason)
    assert describe(b"k", value) is None or value.startswith(b'{"op": "c", "after": {')


@pytest.mark.parametrize("envelope", [b"5", b"[]", b"{}", b'{"fields":5}', b'{"fields":{}}', b'{"fields":[7,"x"]}'])
def test_one_record_with_a_schema_of_no_row_stops_no_flow_and_no_start(envelope: bytes) -> None:
    value = b'{"schema":' + envelope + b',"payload":{"op":"c","after":{"id":1}}}'
    (found,) = decode(PLAIN, [(b"k", value)])
    assert str(found).startswith("no change event of Debezium: its schema has no field 'after'")
    assert describe(b"k", value) is None


def test_a_value_that_is_nested_as_deep_as_can_be_read_is_a_reason_and_not_an_error() -> None:
    for depth in range(850, 1000, 3):
        value = b'{"op":"c","after":{"id":' + b"[" * depth + b"]" * depth + b"}}"
        (found,) = decode(PLAIN, [(b"k", value)])
        assert str(found).startswith(("wrong type: 'id'", "malformed JSON"))


@pytest.mark.parametrize("number", ["1e999999999", "-1e131073", "1e-999999999"])
def test_a_short_number_does_not_become_gigabytes_of_text(number: str) -> None:
    (value,) = [value for _, value in CapturedTable(("x", "numeric", numeric(40, 2))).created("1")]
    assert value is not None
    event = json.loads(value)
    event["payload"]["after"]["x"] = "X"
    spoiled = json.dumps(event).replace('"X"', number).encode()
    (found,) = decode(columns(x=StringType()), [(None, spoiled)])
    assert str(found).startswith("wrong type: 'x' is")


@pytest.mark.parametrize("ts_ms", [10**15, 10**30, -(10**15), True, "1"])
def test_a_time_of_no_known_year_is_left_out(ts_ms: object) -> None:
    event = {"op": "c", "after": {"id": 1}, "source": {"ts_ms": ts_ms}}
    (found,) = decode(PLAIN, [(b"k", json.dumps(event).encode())])
    assert (found["id"], found["_ts"]) == (1, None)


def test_a_truncate_and_a_value_that_was_not_sent_are_rejected() -> None:
    table = CapturedTable(("id", "int4", -1), ("note", "text", -1), ("raw", "bytea", -1), ("tags", "_text", -1))
    events = table.truncated() + table.updated("1", UNSENT, None, None)
    events += table.updated("1", None, UNSENT, None) + table.updated("1", None, None, UNSENT)
    wanted = columns(id=IntegerType(), note=StringType(), raw=BinaryType(), tags=ArrayType(StringType()))
    reasons = decode(wanted, events)
    assert str(reasons[0]).startswith("the table was truncated (op 't')")
    for name, reason in zip(("note", "raw", "tags"), reasons[1:], strict=True):
        assert str(reason).startswith(f"the database did not send '{name}', which is stored out of line")
    assert describe(*events[0]) is None


def test_a_schema_that_makes_no_sense_is_a_reason_and_not_an_error() -> None:
    (value,) = [
        value for _, value in CapturedTable(("id", "int4", -1), ("x", "numeric", numeric(9, 2))).created("1", "2")
    ]
    assert value is not None
    event = json.loads(value)
    after = next(each for each in event["schema"]["fields"] if each["field"] == "after")
    for spoiled in ({"scale": "two"}, {"scale": "999999999999"}):
        after["fields"][1]["parameters"] = spoiled
        (found,) = decode(columns(id=IntegerType(), x=StringType()), [(None, json.dumps(event).encode())])
        assert str(found).startswith(("malformed schema", "wrong type: 'x'")), found
    after["fields"] = 7
    (found,) = decode(columns(id=IntegerType(), x=StringType()), [(None, json.dumps(event).encode())])
    assert str(found).startswith("malformed schema")


def test_a_table_with_a_column_of_the_same_name_is_refused() -> None:
    with pytest.raises(ValueError, match="the table has a column '_op', which is the name of a column of its changes"):
        event_schema(columns(id=IntegerType(), _op=StringType()))


def test_keys_are_those_of_the_record() -> None:
    table = CapturedTable(("b", "int4", -1), ("a", "int4", -1), ("x", "text", -1), key=("a", "b"))
    keyless = CapturedTable(("x", "text", -1), key=())
    found = describe(*table.created("1", "2", None)[0])
    assert found is not None
    assert (found.key, found.has_key) == (("a", "b"), True)
    found = describe(*keyless.created("a")[0])
    assert found is not None
    assert (found.key, found.has_key) == ((), False)
    for key in (b"text", b"\xff", b"1"):
        found = describe(key, keyless.created("a")[0][1])
        assert found is not None
        assert (found.key, found.has_key) == ((), True)


# -- Avro ------------------------------------------------------------------------------------------


@dataclass
class Avro:
    """A registry, and tables whose connector writes Avro by it."""

    serving: SchemaRegistry
    tables: list[CapturedTable] = field(default_factory=list)

    @property
    def registry(self) -> Registry:
        return registry(self.serving.url)

    def table(self, *columns: tuple[str, str, int]) -> CapturedTable:
        self.tables.append(CapturedTable(*columns, registry=self.serving.url))
        return self.tables[-1]


@pytest.fixture
def avro() -> Iterator[Avro]:
    with SchemaRegistry() as serving:
        found = Avro(serving)
        yield found
        for table in found.tables:
            table.close()
        while client._clients:
            client._clients.popitem()[1].close()


def decode_avro(wanted: StructType, events: list[Event], at: Registry | None) -> list[Any]:
    """As `decode`, with a registry."""
    row_type: Any = to_arrow_type(event_schema(wanted), timezone="UTC")
    values = pa.array([value for _, value in events if value is not None], pa.binary())
    decoded = decode_array(values, ChangeEvents(wanted.json(), registry=at).open(), row_type)
    return [row if reason is None else reason for row, reason in (each.values() for each in decoded.to_pylist())]


def test_avro_gives_the_columns_and_values_of_json(avro: Avro) -> None:
    at = avro.registry
    given = [("id", "int4", -1), *((name, kind, modifier) for name, kind, modifier, *_ in TYPES)]
    texts = [text for _, _, _, text, _, _ in TYPES]
    json_events = CapturedTable(*given).created("1", *texts)
    table = avro.table(*given)
    events = [*table.created("1", *texts), *table.created("2", *(None for _ in TYPES)), *table.deleted("1", *texts)]

    found, of_json = describe(*events[0], at), describe(*json_events[0])
    assert found is not None
    assert of_json is not None
    assert found.schema is not None
    wanted = columns_of(found.schema)
    assert wanted == newest_columns(json_events)
    assert (found.key, found.has_key) == (of_json.key, of_json.has_key) == (("id",), True)
    first, nulls, gone = decode_avro(wanted, events, at)
    assert [first] == decode(wanted, json_events)
    assert {nulls[name] for name, *_ in TYPES} == {None}
    assert (gone["_op"], gone["id"]) == ("d", 1)


def test_an_altered_table_is_read_by_the_schema_of_each_record(avro: Avro) -> None:
    at = avro.registry
    before = avro.table(("id", "int4", -1), ("price", "numeric", numeric(10, 2)))
    after = avro.table(("id", "int8", -1), ("price", "numeric", numeric(10, 4)), ("note", "text", -1))
    events = [*before.created("1", "1.25"), *after.created("2", "1.2345", "n"), *before.updated("1", "2.50")]
    json_event = CapturedTable(("id", "int8", -1), ("price", "numeric", numeric(10, 4))).created("3", "7")

    found = describe(*events[1], at)
    assert found is not None
    assert found.schema is not None
    rows = decode_avro(columns_of(found.schema), [*events, *json_event], at)  # the converter was changed at last
    assert [(row["id"], str(row["price"]), row["note"]) for row in rows] == [
        (1, "1.2500", None), (2, "1.2345", "n"), (1, "2.5000", None), (3, "7.0000", None),
    ]  # fmt: skip
    narrow = columns(id=IntegerType(), price=DecimalType(10, 2))
    assert [row if isinstance(row, str) else row[UNKNOWN] for row in decode_avro(narrow, events, at)] == [
        None, "wrong type: Rescaling Decimal value would cause data loss", None,
    ]  # fmt: skip


def test_what_is_not_avro_of_the_registry_is_refused_with_its_reason(avro: Avro) -> None:
    at, wanted = avro.registry, columns(id=IntegerType())
    ((key, value),) = avro.table(("id", "int4", -1)).created("1")
    assert value is not None
    other = avro.serving.register("other", {"schema": '{"type": "record", "name": "r", "fields": []}'})
    broken = avro.serving.register("broken", {"schema": '{"type": "record", "name": "r", "fields": [{"name": "a"}]}'})
    events: list[Event] = [
        (key, value[:-3]), (key, value + b"x"), (key, b"\0\0"), (key, frame(99) + value[5:]), (key, frame(other)),
        (key, frame(broken)),
    ]  # fmt: skip
    cut, longer, short, unknown, no_event, no_schema = decode_avro(wanted, events, at)
    assert cut.startswith("malformed Avro: ")
    assert longer == "malformed Avro: 1 bytes more than the schema describes"
    assert short.startswith("not the registry's wire format: 2 bytes")
    assert unknown == "unknown schema id 99"
    assert no_event == "no change event of Debezium: its schema has no field 'after' with a row"
    assert no_schema.startswith(f"the schema of id {broken} cannot be used: this is no Avro schema")
    (unnamed,) = decode_avro(wanted, [(key, value)], None)
    assert "no registry is named: give registry=registry('http://...')" in unnamed
    with pytest.raises(Undecodable, match="no registry is named"):
        describe(key, value)


def test_an_array_of_nothing_is_refused() -> None:
    """A dozen bytes would be billions of values."""
    empty = {"type": "record", "name": "e", "namespace": "n", "fields": []}
    for items in ("null", empty, {"type": "fixed", "name": "f", "size": 0}):
        fields = [{"name": "one", "type": {"type": "array", "items": items}}]
        with pytest.raises(ValueError, match="an array of values that take no bytes"):
            written_as(json.dumps({"type": "record", "name": "r", "fields": fields}))
    twice: list[dict[str, Any]] = [
        {"name": "a", "type": empty},
        {"name": "b", "type": {"type": "array", "items": "n.e"}},
    ]
    with pytest.raises(ValueError, match="an array of values that take no bytes"):
        written_as(json.dumps({"type": "record", "name": "r", "fields": twice}))


# -- which change is the newest --------------------------------------------------------------------


def seen(at_ms: int, place: Any, *names: str) -> tuple[int, Described]:
    """A change at a time and a place, with these columns."""
    return at_ms, Described({"type": "struct", "fields": [{"field": name} for name in names]}, ("id",), True, place)


def test_of_two_changes_of_one_millisecond_the_one_with_the_columns_of_now_is_newer() -> None:
    def newer(one: Any, other: Any) -> bool:
        return _is_newer(one, other, chooses=True)

    assert newer(seen(2, (), "id"), seen(1, (), "id", "a"))
    early, late = seen(1, ("", 7), "id", "a"), seen(1, ("", 8), "id", "b")  # a was renamed: the log has the order
    assert newer(late, early)
    assert not newer(early, late)
    one, more = seen(1, (), "id"), seen(1, (), "id", "a")
    assert newer(more, one)
    assert not newer(one, more)
    with pytest.raises(ValueError, match=r"different columns \(a, b\), so that it is not known which the table has"):
        newer(seen(1, (), "id", "b"), more)
    assert not _is_newer(seen(1, (), "id", "b"), more, chooses=False)


def test_a_change_shows_its_place_in_the_databases_log() -> None:
    table = CapturedTable(("id", "int4", -1))
    first, second = (describe(*table.created(number)[0]) for number in "12")
    assert first is not None
    assert second is not None
    assert first.place < second.place
    source = {"file": "binlog.000007", "pos": 4}
    of_mysql = describe(None, json.dumps({"op": "c", "after": {"id": 1}, "source": source}).encode())
    assert of_mysql is not None
    assert of_mysql.place == ("binlog.000007", 4)
    unplaced = describe(None, b'{"op": "c", "after": {"id": 1}, "source": {"lsn": "x"}}')
    assert unplaced is not None
    assert unplaced.place == ()
