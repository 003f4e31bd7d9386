import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from ottla.registry.avro import MOST_OBJECTS, reader
from ottla.registry.client import Found
from ottla.registry.undecodable import Undecodable


def read(schema: Any, *references: Any) -> Any:
    given = tuple((each["name"], json.dumps(each)) for each in references)
    return reader(Found(1, "AVRO", json.dumps(schema), given))


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def test_a_value_becomes_json() -> None:
    schema = record(
        "Flight",
        carrier="string",
        at=logical("long", "timestamp-millis"),
        day=["null", logical("int", "date")],
        noon=logical("int", "time-millis"),
        fare=logical("bytes", "decimal", precision=8, scale=2),
        long=logical("bytes", "decimal", precision=40, scale=2),
        raw="bytes",
        raws={"type": "array", "items": "bytes"},
        fixed={"type": "fixed", "name": "Two", "size": 2},
        again="Two",
        kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        leg="Leg",
    )
    leg = record("Leg", to="string")
    given = {
        "carrier": "UA",
        "at": datetime(2026, 1, 1, 1, 2, 3, 4000, tzinfo=UTC),
        "day": date(2013, 1, 1),
        "noon": time(12, 0, 1),
        "fare": Decimal("-12.50"),
        "long": Decimal("-12345678901234567890.12"),
        "raw": b"\1",
        "raws": [b"a"],
        "fixed": b"ab",
        "again": b"cd",
        "kind": "B",
        "leg": {"to": "JFK"},
    }
    named: dict[str, Any] = {}
    parse_schema(leg, named_schemas=named)
    out = BytesIO(b"head.")
    out.seek(5)
    schemaless_writer(out, parse_schema(schema, named_schemas=named), given)

    found = read(schema, leg)(out.getvalue(), 5)

    assert json.loads(json.dumps(found)) == {
        "carrier": "UA",
        "at": "2026-01-01T01:02:03.004Z",
        "day": "2013-01-01",
        "noon": "12:00:01.000",
        "fare": -12.5,
        "long": "-12345678901234567890.12",
        "raw": "AQ==",
        "raws": ["YQ=="],
        "fixed": "YWI=",
        "again": "Y2Q=",
        "kind": "B",
        "leg": {"to": "JFK"},
    }


def test_what_no_calendar_has_stays_a_number() -> None:
    far = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert read(logical("long", "timestamp-millis"))(far, 0) == -(2**63)
    assert read(logical("long", "time-micros"))(far, 0) == -(2**63)
    assert read(logical("int", "date"))(b"\xfe\xff\xff\xff\x0f", 0) == 2**31 - 1


def test_a_decimal_of_many_digits_stays_bytes() -> None:
    found = read(logical("bytes", "decimal", precision=10**6, scale=2))(b"\x80\x10" + b"\x7f" * 1024, 0)
    assert found.startswith("f39/")


LIST = record("Node", next=["null", "Node"])


def test_a_list_of_records_that_contain_their_kind_is_read_to_a_bounded_depth() -> None:
    assert read(LIST)(b"\x02\x02\0", 0) == {"next": {"next": {"next": None}}}
    with pytest.raises(Undecodable, match="RecursionError"):
        read(LIST)(b"\x02" * 20_000 + b"\0", 0)  # fastavro's reader in C ends the process


def laughing(depth: int) -> list[dict[str, Any]]:
    """Each record has ten of the one before, and the first nothing."""
    first = record("L0", nothing="null")
    return [first, *(record(f"L{n}", **{f"f{i}": f"L{n - 1}" for i in range(10)}) for n in range(1, depth))]


@pytest.mark.parametrize(
    ("schema", "references", "said"),
    [
        (record("A", again="A"), (), "contains itself without end"),
        (record("A", b=record("B", a="A")), (), "contains itself without end"),
        ({"type": "array", "items": "null"}, (), "values that take no bytes"),
        ({"type": "array", "items": record("E")}, (), "values that take no bytes"),
        ("unheard of", (), "no Avro schema"),
        (5, (), "no Avro schema"),
        (laughing(9)[-1], laughing(8), "too many parts"),
    ],
)
def test_hostile_schemas_are_refused(schema: Any, references: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(schema, *references)


def test_a_deeply_nested_schema_is_refused() -> None:
    nested = '{"type": "array", "items": ' * 500 + '"int"' + "}" * 500
    with pytest.raises(ValueError, match="too deeply nested"):
        reader(Found(1, "AVRO", nested, ()))


def test_a_value_that_may_become_too_many_objects_is_not_read() -> None:
    wide = read({"type": "array", "items": record("W", byte="boolean", **{f"n{i}": "null" for i in range(999)})})
    assert len(wide(b"\x02\0\0", 0)) == 1
    with pytest.raises(Undecodable, match="too many to read"):
        wide(b"\x80\x80\x02" + b"\0" * (MOST_OBJECTS // 1000), 0)


def test_long_texts_and_many_optional_parts_are_no_reason_to_refuse() -> None:
    text = read(record("T", a="string", b=["null", "string"]))
    long = b"\x80\x89\x7a" + b"x" * 1_000_000  # a length of 2,000,000 in zigzag
    assert len(text(long + b"\0", 0)["a"]) == 1_000_000
    levels = [record("L0", text="string")]
    for number in range(1, 9):
        fields = {f"f{each}": ["null", f"L{number - 1}"] for each in range(10)}
        levels.append(record(f"L{number}", **fields))
    assert read(levels[-1], *levels[:-1])(bytes(10), 0) == dict.fromkeys(f"f{each}" for each in range(10))


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02a?", b"\xff\xff\xff\xff\x0f"])
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(Undecodable, match="malformed Avro"):
        read("string")(data, 0)
