"""Converters: there and back, what they refuse, and the bytes that Kafka's own JsonConverter writes (see the
oracle's test).
"""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError
from tests.support.schema_registry import SchemaRegistry

from ottla.connect.converters.base import Converter, converter
from ottla.connect.converters.headers import SimpleHeaderConverter
from ottla.connect.converters.java_text import double, quoted, single
from ottla.connect.errors import BadRecord, ConfigError, ConnectError, Retriable
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT64,
    STRING,
    Schema,
    Shared,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)

JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"

AT = dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)
EVERYTHING = struct(
    "db.Everything",
    tiny=INT8,
    small=INT16.as_optional(),
    big=INT64,
    single=FLOAT32,
    double=FLOAT64,
    flag=BOOLEAN,
    text=STRING.as_optional(),
    raw=BYTES,
    price=decimal(2),
    day=date(),
    clock=time(optional=True),
    at=timestamp(),
    tags=array(STRING),
    counts=map_of(STRING, INT64),
    inner=struct("db.Inner", optional=True, x=INT64),
)
VALUE = {
    "tiny": -3,
    "small": None,
    "big": 1 << 60,
    "single": 0.5,
    "double": 1e10,
    "flag": True,
    "text": 'Zürich "☃"',
    "raw": b"\x00\xff",
    "price": Decimal("-12.34"),
    "day": dt.date(2026, 2, 3),
    "clock": dt.time(1, 2, 3, 4000),
    "at": AT,
    "tags": ["a", "b"],
    "counts": {"k": 1},
    "inner": {"x": 1},
}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as registry:
        yield registry


def made(name: str, **settings: str) -> Converter:
    named = {key.replace("_", "."): text for key, text in settings.items()}
    return converter(name, named, is_key=False, setting="value.converter")


def test_json_with_schema_comes_back() -> None:
    json_converter = made(JSON)
    payload = json_converter.to_bytes("t", EVERYTHING, VALUE)
    schema, value = json_converter.to_value("t", payload)
    assert value == VALUE
    assert json_converter.to_bytes("t", schema, value) == payload


@pytest.mark.parametrize("name", [AVRO, JSON_SCHEMA])
def test_a_registry_keeps_the_schema(name: str, registry: SchemaRegistry) -> None:
    through = made(name, schema_registry_url=registry.url)
    payload = through.to_bytes(name, EVERYTHING, VALUE)
    assert payload is not None
    assert payload[0] == 0
    reader = made(name, schema_registry_url=registry.url)
    schema, value = reader.to_value(name, payload)
    reader.close()
    assert value == VALUE
    assert schema is not None
    assert [(each.name, each.schema.type) for each in schema.fields] == [
        (each.name, each.schema.type) for each in EVERYTHING.fields
    ]
    assert through.to_bytes(name, None, None) is None
    with pytest.raises(BadRecord, match="does not begin as a registry's values do"):
        through.to_value(name, b"{}")
    with pytest.raises(BadRecord):
        through.to_bytes(name, EVERYTHING, {**VALUE, "big": "text"})
    through.close()


def test_a_struct_is_written_as_it_is_now_and_a_shared_one_once() -> None:
    where = struct(None, table=STRING, lsn=INT64)
    schema = struct(None, source=where, id=INT64)
    plain = made(JSON, schemas_enable="false")
    changing: dict[str, Any] = {"table": "orders", "lsn": 1}
    shared = Shared(table="orders", lsn=2)
    written = []
    for number in range(2):
        changing["lsn"] += number
        written += [plain.to_bytes("t", schema, {"source": each, "id": 7}) for each in (changing, shared)]
    texts = [f'{{"source":{{"table":"orders","lsn":{lsn}}},"id":7}}'.encode() for lsn in (1, 2, 2, 2)]
    assert written == texts


def test_json_without_schema() -> None:
    plain = made(JSON, schemas_enable="false")
    assert plain.to_bytes("t", None, {"a": [1, 2.0, None], "b": "ü"}) == '{"a":[1,2.0,null],"b":"ü"}'.encode()
    assert plain.to_value("t", b'{"a": 1.5}') == (None, {"a": 1.5})
    assert plain.to_bytes("t", None, None) is None
    assert plain.to_value("t", None) == (None, None)
    with pytest.raises(BadRecord, match="is no JSON"):
        plain.to_value("t", b"{")
    with pytest.raises(BadRecord, match='fields "schema" and "payload"'):
        made(JSON).to_value("t", b"{}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT8, True),
        (STRING, 5),
        (STRING, None),
        (decimal(1), Decimal("0.25")),
        (date(), "2026-01-01"),
        (timestamp(), AT.replace(tzinfo=None)),
        (EVERYTHING, 5),
    ],
)
def test_what_does_not_fit_its_schema_is_refused(schema: Schema, value: Any) -> None:
    with pytest.raises(BadRecord):
        made(JSON).to_bytes("t", schema, value)


def test_defaults_stand_for_nothing() -> None:
    schema = Schema(INT64.type, optional=True, default=5, has_default=True)
    payload = made(JSON).to_bytes("t", schema, None)
    assert payload == b'{"schema":{"type":"int64","optional":true,"default":5},"payload":5}'
    assert made(JSON, replace_null_with_default="false").to_bytes("t", schema, None) == payload.replace(
        b'd":5}', b'd":null}'
    )


def test_simple_converters() -> None:
    assert made("StringConverter").to_bytes("t", None, "ü") == "ü".encode()
    assert made("StringConverter").to_bytes("t", None, True) == b"true"
    assert made("ByteArrayConverter").to_value("t", b"\0")[1] == b"\0"
    assert made("LongConverter").to_bytes("t", None, 1) == b"\0\0\0\0\0\0\0\1"
    with pytest.raises(BadRecord, match="3 bytes"):
        made("LongConverter").to_value("t", b"abc")
    with pytest.raises(ConfigError, match=r"there is no converter 'JsonConvertor'"):
        made("JsonConvertor")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (-0.0, "-0.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (float("nan"), '"NaN"'),
        (123456.789, "123456.789"),
    ],
)
def test_doubles_as_java_prints_them(value: float, text: str) -> None:
    assert double(value) == text


def test_floats_and_strings_as_java_prints_them() -> None:
    assert single(0.1) == "0.1"
    assert single(16777216.0) == "1.6777216E7"
    assert quoted('\x1f/\u2028"') == '"\\u001F/\u2028\\""'


@pytest.mark.parametrize("value", ["text", "12a", 5, -300, 1 << 40, 2.5, True, None])
def test_headers_come_back(value: Any) -> None:
    headers = SimpleHeaderConverter()
    assert headers.to_value("t", headers.to_bytes("t", None, value))[1] == value


def test_lists_in_headers() -> None:
    headers = SimpleHeaderConverter()
    assert json.loads(headers.to_bytes("t", None, [1, "a"]) or b"") == [1, "a"]


def test_json_is_read_whether_its_schema_is_that_of_the_record_before_or_not() -> None:
    one, other = struct("t.One", a=INT64, b=FLOAT64), struct("t.Other", a=STRING, d=decimal(2))
    reader, writer = made(JSON), made(JSON, decimal_format="NUMERIC")
    many_digits = Decimal("12345678901234567890.12")
    for schema, value in [
        (one, {"a": 1, "b": 1.5}),
        (one, {"a": 2, "b": 0.1}),
        (other, {"a": "ü", "d": many_digits}),
        (other, {"a": "}", "d": many_digits}),
        (one, {"a": 3, "b": 1e22}),
    ]:
        assert reader.to_value("t", writer.to_bytes("t", schema, value))[1] == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"schema":{"type":"int64"},"payload":2}', 2),
        ('{"schema":{"type":"int64"},"payload": 2 }\n', 2),
        ('{"payload":2,"schema":{"type":"int64"}}', 2),
        ('{"schema":{"type":"int64"},"payload":1,"payload":2}', 2),
        ('{"schema":{"type":"int64"},"payload":2.0}', 2),
    ],
)
def test_json_is_read_however_it_is_written(text: str, value: int) -> None:
    reader = made(JSON)
    usual = b'{"schema":{"type":"int64"},"payload":1}'
    for _ in range(2):
        assert reader.to_value("t", usual)[1] == 1
        assert reader.to_value("t", text.encode())[1] == value


@pytest.mark.parametrize("end", ["5x", "}", '"a"}', "null}", "5.5e400}", "\udcff}"])
def test_what_is_not_json_of_the_schema_before_is_refused(end: str) -> None:
    reader = made(JSON)
    reader.to_value("t", b'{"schema":{"type":"int64"},"payload":1}')
    with pytest.raises(BadRecord):
        reader.to_value("t", f'{{"schema":{{"type":"int64"}},"payload":{end}'.encode(errors="surrogateescape"))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ConnectError), (403, ConnectError), (404, BadRecord), (408, Retriable), (429, Retriable), (503, Retriable)],
)
def test_no_record_is_bad_because_a_registry_is_busy_or_lets_nobody_in(
    status: int, kind: type[ConnectError], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = made(AVRO, schema_registry_url="http://there")

    def refuse(_number: int) -> None:
        raise SchemaRegistryError(status, status * 100, "not now")

    monkeypatch.setattr(reader._registry._client, "get_schema", refuse)  # type: ignore[attr-defined]
    with pytest.raises(ConnectError, match="not now") as refused:
        reader.to_value("t", b"\0\0\0\0\1rest")
    assert type(refused.value) is kind


MALFORMED: dict[str, list[Any]] = {
    JSON: [
        {"type": "int32", "name": {}},
        {"type": "array", "name": "org.apache.kafka.connect.data.Date", "items": {"type": "int32"}},
        {"type": "int32", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": None}},
    ],
    AVRO: [5, {"type": "record", "name": "n", "fields": 5}, {"type": "int", "name": "n", "logicalType": "decimal"}],
    JSON_SCHEMA: [
        {"type": "object", "properties": 5},
        {"type": "object", "required": [[]]},
        {"type": "array", "connect.type": "map", "items": None},
        {"type": "string", "connect.type": []},
        {"connect.type": "bytes", "items": 1.5},
    ],
}


@pytest.mark.parametrize(("name", "schema"), [(name, each) for name, some in MALFORMED.items() for each in some])
def test_a_record_with_a_malformed_schema_is_bad(name: str, schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = made(name, schema_registry_url="http://there", json_fail_invalid_schema="true")
    payload = json.dumps({"schema": schema, "payload": None}).encode()
    if name != JSON:
        rest = b"\0" if name == AVRO else b"[1]"
        monkeypatch.setattr(reader, "_registry", KnownSchema(json.dumps(schema), rest))
    with pytest.raises(BadRecord, match=r"the schema of a record in t cannot be used|scale|is no Avro by its schema"):
        reader.to_value("t", payload)


class KnownSchema:
    """A registry that knows the schema of one record."""

    def __init__(self, text: str, rest: bytes) -> None:
        self._split = text, rest

    def split(self, _topic: str, _payload: bytes) -> tuple[str, bytes]:
        return self._split


def test_a_record_that_comes_twice_is_described_once(registry: SchemaRegistry) -> None:
    """As the rows before and after a change: Avro describes each name once."""
    row = struct("shop.Value", id=INT64, price=decimal(2))
    odd, other = map_of(INT64, STRING), map_of(INT64, INT64)
    unnamed, another = struct(None, a=INT64), struct(None, b=STRING)
    envelope = struct(
        "shop.Envelope", before=row.as_optional(), after=row, odd=odd, odd2=odd, other=other, one=unnamed, two=another
    )
    value = {
        "before": None, "after": {"id": 1, "price": Decimal("2.50")}, "odd": {1: "a"}, "odd2": {2: "b"},
        "other": {3: 4}, "one": {"a": 5}, "two": {"b": "c"},
    }  # fmt: skip
    through = made(AVRO, schema_registry_url=registry.url)
    payload = through.to_bytes("twice", envelope, value)
    both = through.to_bytes("twice", envelope, {**value, "before": {"id": 1, "price": Decimal("1.00")}})
    reader = made(AVRO, schema_registry_url=registry.url)
    assert reader.to_value("twice", payload)[1] == value
    schema, found = reader.to_value("twice", both)
    assert found["before"] == {"id": 1, "price": Decimal("1.00")}
    assert schema is not None
    assert through.to_bytes("twice", schema, found) is not None
    with pytest.raises(BadRecord, match=r"two records shop\.Value have other fields"):
        through.to_bytes("twice", struct("e", a=row, b=struct("shop.Value", id=STRING)), None)
    reader.close()
    through.close()
