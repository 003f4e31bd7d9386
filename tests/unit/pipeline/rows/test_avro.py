import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql.types import StructType

from ottla.pipeline.rows.avro_types import spark_schema
from ottla.pipeline.rows.decode_avro import _Avro, _parsed
from ottla.registry.client import Found, frame
from ottla.registry.undecodable import Undecodable


def record(*fields: dict[str, Any], name: str = "Flight") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def typed(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


EVERYTHING = record(
    typed("carrier", "string"),
    typed("delay", ["null", "int"], default=None),
    typed("seen", logical("long", "timestamp-millis")),
    typed("day", logical("int", "date")),
    typed("fare", logical("bytes", "decimal", precision=8, scale=2)),
    typed("legs", {"type": "array", "items": record(typed("to", "string"), name="Leg")}),
    typed("back", ["null", "Leg"]),
    typed("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    typed("tags", {"type": "map", "values": "long"}),
    typed("wide", ["int", "long"]),
    typed("at", logical("int", "time-millis")),
    typed("id", logical("string", "uuid")),
)
ROW = {
    "carrier": "UA",
    "delay": None,
    "seen": datetime(2013, 1, 1, tzinfo=UTC),
    "day": date(2013, 1, 1),
    "fare": Decimal("12.50"),
    "legs": [{"to": "JFK"}],
    "back": {"to": "EWR"},
    "kind": "A",
    "tags": {"x": 1},
    "wide": 2**40,
    "at": 1_000,
    "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
}


def columns(schema: dict[str, Any]) -> StructType:
    parsed, named = _parsed(json.dumps(schema), ())
    return spark_schema(parsed, named)


def written(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), row)
    return out.getvalue()


def test_types_are_those_of_sparks_own_from_avro() -> None:
    assert columns(EVERYTHING).simpleString() == (
        "struct<carrier:string,delay:int,seen:timestamp,day:date,fare:decimal(8,2),legs:array<struct<to:string>>,"
        "back:struct<to:string>,kind:string,tags:map<string,bigint>,wide:bigint,at:int,id:string>"
    )
    assert [field.name for field in columns(EVERYTHING) if field.nullable] == ["delay", "back"]


def test_a_record_becomes_a_row() -> None:
    plain = {**EVERYTHING, "fields": [*EVERYTHING["fields"][:-2], typed("at", "int"), typed("id", "string")]}

    assert _Avro(json.dumps(EVERYTHING), (), None).open()(written(plain, ROW)) == ROW


def test_bytes_that_end_early_or_late_are_malformed() -> None:
    schema = record(typed("carrier", "string"), typed("delay", "int"))
    decode = _Avro(json.dumps(schema), (), None).open()
    data = written(schema, {"carrier": "UA", "delay": 3})

    assert decode(data) == {"carrier": "UA", "delay": 3}
    for length in range(len(data)):
        with pytest.raises(Undecodable, match="malformed Avro"):
            decode(data[:length])
    with pytest.raises(Undecodable, match="2 bytes more than the schema describes"):
        decode(data + b"xx")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (typed("x", ["string", "int"]), "Flight.x is a union of several types"),
        (typed("x", logical("bytes", "decimal", precision=40, scale=2)), "Flight.x has 40 digits"),
        (typed("x", ["null", "Flight"]), "Flight contains itself"),
    ],
)
def test_what_has_no_column_type_is_refused_by_name(field: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        columns(record(field))


@pytest.mark.parametrize("text", ["", "{", '{"type": "nonsense"}'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no Avro schema"):
        _parsed(text, ())


def test_a_schema_of_rows_is_a_record() -> None:
    with pytest.raises(ValueError, match="is a record"):
        columns({"type": "array", "items": "int"})


def test_a_deeply_nested_record_of_a_schema_that_contains_itself_is_rejected() -> None:
    node = record(typed("id", "int"), typed("next", ["null", "Node"]), name="Node")

    class Holding:
        def by_id(self, schema_id: int, wanted: str) -> Found:
            return Found(schema_id, "AVRO", json.dumps(node), ())

    registry: Any = Holding()
    decode = _Avro(json.dumps(record(typed("id", "int"), name="Node")), (), registry).open()
    assert decode(frame(1) + b"\x02\x02\x04\0") == {"id": 1}
    with pytest.raises(Undecodable, match="malformed Avro: RecursionError"):  # fastavro's reader in C ends the process
        decode(frame(1) + b"\x02\x02" * 100_000 + b"\x02\0")
