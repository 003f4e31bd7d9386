"""Values by the schemas of a registry, and what pages say where there are none."""

import json
import threading
from collections.abc import Iterator
from io import BytesIO
from typing import cast

import fastavro
import pytest
from tests.support.schema_registry import SchemaRegistry

from ottla.console import schemas as module
from ottla.console.schemas import Schemas, schemas_at, unconfigured
from ottla.console.values import recognise, show
from ottla.registry import client
from ottla.registry.client import Found, Registry, frame

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "to", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(user="ann:secret") as started:
        yield started
    while client._clients:
        client._clients.popitem()[1].close()


@pytest.fixture
def schemas(server: SchemaRegistry) -> Schemas:
    return schemas_at(server.url, {"basic.auth.user.info": "ann:secret"})


def avro(schema_id: int, to: str = "JFK") -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(FLIGHT), {"to": to})
    return frame(schema_id) + out.getvalue()


def test_a_value_is_decoded_and_its_schema_asked_for_once(server: SchemaRegistry, schemas: Schemas) -> None:
    schema_id = server.register("s", {"schema": json.dumps(FLIGHT)})
    for to in ("JFK", "EWR"):
        value = recognise(avro(schema_id, to), schemas.decode)
        assert (value.kind, value.content, value.note) == ("avro", {"to": to}, f"Schema {schema_id}")
        assert show(value).text == json.dumps({"to": to})
    assert server.asked == [f"GET /schemas/ids/{schema_id}"]


def test_json_behind_an_id_is_json(server: SchemaRegistry, schemas: Schemas) -> None:
    schema_id = server.register("s", {"schema": '{"type": "object"}', "schemaType": "JSON"})
    assert recognise(frame(schema_id) + b'{"a": 1}', schemas.decode).content == {"a": 1}
    assert "no object" in recognise(frame(schema_id) + b"a", schemas.decode).note


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (frame(99) + b"?", "Not decoded: the registry has no schema 99."),
        (frame(1) + b"\x7f", "Not decoded by schema 1: malformed Avro: EOFError"),
        (frame(2) + b"?", "Not decoded: schema 2 cannot be used: this is no Avro schema"),
        (frame(1) + bytes(5 << 20), "Schema 1; it is too large to be decoded here."),
    ],
)
def test_what_cannot_be_decoded_is_bytes_and_a_sentence(
    server: SchemaRegistry, schemas: Schemas, data: bytes, note: str
) -> None:
    server.register("s", {"schema": json.dumps(FLIGHT)})
    server.register("s", {"schema": '{"type": "nothing"}'})
    value = recognise(data, schemas.decode)
    assert value.kind == "bytes"
    assert value.note.startswith(note)


def test_a_registry_that_is_away_is_left_alone_for_a_while(server: SchemaRegistry) -> None:
    now = 100.0
    asked = schemas_at(server.url, {})._registry
    schemas = Schemas(asked, lambda: now)
    server.register("s", {"schema": json.dumps(FLIGHT)})
    for _ in range(5):
        assert "User cannot be authenticated" in recognise(avro(1), schemas.decode).note
    assert len(server.asked) == 1
    now += 11
    recognise(avro(1), schemas.decode)
    assert len(server.asked) == 2
    nobody = schemas_at("http://127.0.0.1:1", {})
    assert "cannot be reached" in recognise(avro(1), nobody.decode).note


def test_ids_of_hostile_records_are_asked_for_at_a_bounded_rate(
    server: SchemaRegistry, schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ASKED", 5)
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    notes = [recognise(frame(number) + b"?", schemas.decode).note for number in range(1, 50)]
    assert len(server.asked) == 5
    assert "more than 5 schemas" in notes[-1]
    assert len(schemas._refused) == 3


def test_without_a_registry_a_sentence_says_what_would_decode_it() -> None:
    assert "--registry URL" in recognise(avro(5), unconfigured).note
    assert recognise(frame(5) + b'{"a": 1}', unconfigured).content == {"a": 1}
    assert recognise(bytes(8), unconfigured).note == ""
    assert recognise(b"\0\0\0\0\0\0\0\7", unconfigured).note == ""


@pytest.mark.parametrize(("url", "settings"), [("nowhere", {}), ("http://a", {"no.such": "1"})])
def test_an_address_or_setting_that_is_none_is_refused_at_once(url: str, settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be asked so"):
        schemas_at(url, settings)


def test_no_page_has_the_password_of_a_registry() -> None:
    note = recognise(frame(1) + b"?", schemas_at("http://ann:secret@127.0.0.1:1", {}).decode).note
    assert "secret" not in note
    assert "cannot be reached" in note


def test_a_registry_that_answers_slowly_holds_no_search_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    answers = threading.Event()

    class Slow:
        def by_id(self, schema_id: int, wanted: str | None) -> Found:
            answers.wait(10)
            return Found(schema_id, "JSON", "{}", ())

    schemas = Schemas(cast(Registry, Slow()))
    notes = [schemas.decode(frame(number) + b"{}").note for number in (1, 2)]
    assert ["does not answer within" in notes[0], "not answered yet" in notes[1]] == [True, True]
    answers.set()
    schemas._asked.result(10)  # type: ignore[union-attr]
    assert schemas.decode(frame(3) + b"{}").kind == "json"
