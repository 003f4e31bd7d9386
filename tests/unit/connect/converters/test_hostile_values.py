"""Values and schemas that are made to take time or memory: each is a bad record, soon."""

import io
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pytest

from ottla.connect.converters.avro_converter import AvroConverter
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.json_schema_converter import JsonSchemaConverter
from ottla.connect.errors import BadRecord

DEEP = 100_000


@contextmanager
def cheaply(*, cpu_s: float = 2.0, megabytes: int = 200) -> Iterator[None]:
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < cpu_s
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < megabytes << 10


def avro(document: Any, payload: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    return by_registry(AvroConverter, {}, document, payload, monkeypatch)


def by_registry(
    kind: Any, settings: dict[str, str], document: Any, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """What a converter makes of a value whose registry has this schema."""
    converter = kind({"schema.registry.url": "http://127.0.0.1:1", **settings}, is_key=False)
    text = document if isinstance(document, str) else json.dumps(document)
    monkeypatch.setattr(converter._registry, "split", lambda _topic, payload: (text, payload))
    return converter.to_value("t", payload)[1]


def zigzag(number: int) -> bytes:
    number, out = number << 1 ^ number >> 63, b""
    while number > 127:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


EMPTY = {"type": "record", "name": "E", "fields": []}


@pytest.mark.parametrize(
    "items",
    [
        EMPTY,
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "T", "fields": [{"name": "a", "type": EMPTY}, {"name": "b", "type": "E"}]},
    ],
)
def test_a_dozen_bytes_are_not_billions_of_values(items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = zigzag(1 << 40) + zigzag(0)
    for kind in ({"type": "array", "items": items}, {"type": "map", "values": {"type": "array", "items": items}}):
        with cheaply(), pytest.raises(BadRecord, match="an array of values that take no bytes"):
            avro(record(kind), payload, monkeypatch)


def test_what_takes_no_bytes_elsewhere_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    document = record({"type": "array", "items": ["null", "int"]})
    parsed = fastavro.parse_schema(json.loads(json.dumps(document)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"x": [1, None, 2]})
    assert avro(document, out.getvalue(), monkeypatch) == {"x": [1, None, 2]}


@pytest.mark.parametrize(
    ("document", "payload"),
    [
        ({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}, zigzag(1) * DEEP),
        (record("bytes"), zigzag(1 << 40) + b"x"),
        (record("string"), zigzag(-5) + b"x"),
        (record({"type": "array", "items": "int"}), zigzag(1 << 40) + b"\x00" * 10),
        (record({"type": "map", "values": "int"}), zigzag(-(1 << 40)) + zigzag(1 << 40) + b"\x00" * 10),
        (record("string"), b"\xff" * 1000),
        ('{"type":"array","items":' * DEEP + '"int"' + "}" * DEEP, b""),
        ("[" * DEEP, b""),
    ],
)
def test_avro_that_lies_or_nests_is_a_bad_record(
    document: Any, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cheaply(), pytest.raises(BadRecord):
        avro(document, payload, monkeypatch)


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize(
    "payload",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"schema":' + b'{"type":"array","items":' * DEEP,
        b'{"schema":{"type":"string"},"payload":' + b"[" * DEEP,
        b"9" * DEEP,
        b'{"schema":{"type":"int64","optional":false},"payload":' + b"9" * DEEP + b"}",
    ],
)
def test_json_that_nests_is_a_bad_record(payload: bytes, schemas: str) -> None:
    with cheaply(), pytest.raises(BadRecord):
        JsonConverter({"schemas.enable": schemas}).to_value("t", payload)


def test_keys_that_were_made_to_collide_do_not() -> None:
    """Names are hashed with a secret of the process; a hundred thousand are read in linear time."""
    small, large = (
        json.dumps({f"{number:040x}": number for number in range(count)}).encode() for count in (10_000, 100_000)
    )

    def cpu_s(payload: bytes) -> float:
        began = time.process_time()
        JsonConverter({"schemas.enable": "false"}).to_value("t", payload)
        return time.process_time() - began

    assert min(cpu_s(large) for _ in range(3)) < 40 * min(cpu_s(small) for _ in range(3))


def test_expressions_of_a_json_schema_do_not_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = {"json.fail.invalid.schema": "true"}
    name = "a" * 200
    for rule in (
        {"properties": {"x": {"type": "string", "pattern": "^(a+)+!$"}}},
        {"properties": {"x": {"type": "string"}}, "patternProperties": {"^(a+)+!$": False}, "required": ["y"]},
        {
            "properties": {"x": {"type": "string"}},
            "patternProperties": {"^(a+)+!$": {}},
            "additionalProperties": False,
        },
    ):
        payload = json.dumps({"x": name, name: 1}).encode()
        with cheaply(), pytest.raises(BadRecord, match="does not follow its schema"):
            by_registry(JsonSchemaConverter, checked, {"type": "object", **rule}, payload, monkeypatch)
    fine = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^[a-z]{2}-\\d+$"}},
        "patternProperties": {"^y": {}},
        "additionalProperties": False,
    }
    assert by_registry(JsonSchemaConverter, checked, fine, b'{"x": "ab-1", "yes": 1}', monkeypatch)["x"] == "ab-1"
