import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.support.schema_registry import SchemaRegistry

from ottla.registry import client
from ottla.registry.client import (
    RegistryAwayError,
    RegistryError,
    SubjectError,
    frame,
    framed,
    registry,
)
from ottla.registry.undecodable import Undecodable

TEXT = '{"type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}'
QUICKLY = {"max.retries": "0"}


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while client._clients:
        client._clients.popitem()[1].close()


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as server:
        yield server


def test_five_bytes_say_which_schema() -> None:
    assert framed(frame(0x01020304) + b"data") == (0x01020304, 5)


@pytest.mark.parametrize(
    ("value", "said"),
    [(b"\0\0\0\1", "4 bytes, its head alone has 5"), (b'{"a": 1}', "begins with byte 123, not 0"), (b"", "0 bytes")],
)
def test_other_bytes_are_the_records_fault(value: bytes, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        framed(value)


def test_a_schema_is_asked_for_once(server: SchemaRegistry) -> None:
    schema_id = server.register("legs-value", {"schema": TEXT})
    asked = registry(server.url)

    found = [asked.by_id(schema_id, "AVRO") for _ in range(3)]

    assert {each.text for each in found} == {TEXT}
    assert server.asked == [f"GET /schemas/ids/{schema_id}"]


def test_a_process_ends_without_an_open_connection(server: SchemaRegistry) -> None:
    schema_id = server.register("legs-value", {"schema": TEXT})
    program = f"from ottla.registry.client import registry; registry({server.url!r}).by_id({schema_id}, 'AVRO')"
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program]
    assert subprocess.run(command, stderr=subprocess.PIPE, check=True, text=True).stderr == ""


def test_an_unknown_id_is_the_records_fault_and_is_asked_for_again_later(
    server: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = registry(server.url)
    for _ in range(3):
        with pytest.raises(Undecodable, match="unknown schema id 1"):
            asked.by_id(1, "AVRO")
    assert len(server.asked) == 1

    server.register("legs-value", {"schema": TEXT})
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert asked.by_id(1, "AVRO").text == TEXT


def test_a_registry_that_is_away_is_not_the_records_fault(server: SchemaRegistry) -> None:
    asked = registry(server.url, settings=QUICKLY)
    server.stop()

    with pytest.raises(RegistryAwayError, match="cannot be reached"):
        asked.by_id(1, "AVRO")


def test_a_user_who_is_refused_is_not_the_records_fault_and_trying_again_does_not_help() -> None:
    with SchemaRegistry(user="reader:secret") as server:
        server.register("legs-value", {"schema": TEXT})

        with pytest.raises(RegistryError, match="User cannot be authenticated") as refused:
            registry(server.url, user="reader:wrong").by_id(1, "AVRO")
        assert not isinstance(refused.value, RegistryAwayError)
        assert registry(server.url, user="reader:secret").by_id(1, "AVRO").text == TEXT


def test_an_address_without_a_registry_is_not_the_records_fault(server: SchemaRegistry) -> None:
    with pytest.raises(RegistryError, match="404"):
        registry(f"{server.url}/elsewhere", settings=QUICKLY).by_id(1, "AVRO")


def test_a_subject_has_versions(server: SchemaRegistry) -> None:
    newer = TEXT.replace('"to"', '"from"')
    server.register("legs-value", {"schema": TEXT})
    server.register("legs-value", {"schema": newer})
    asked = registry(server.url)

    assert asked.by_subject("legs-value", "AVRO").text == newer
    assert asked.by_subject("legs-value", "AVRO", 1).text == TEXT
    with pytest.raises(SubjectError, match=r"subject nothing: no such subject"):
        asked.by_subject("nothing", "AVRO")
    with pytest.raises(SubjectError, match=r"version 3: no such version"):
        asked.by_subject("legs-value", "AVRO", 3)
    with pytest.raises(SubjectError, match=r"is AVRO, not PROTOBUF"):
        asked.by_subject("legs-value", "PROTOBUF")


def test_what_a_schema_refers_to_comes_before_it(server: SchemaRegistry) -> None:
    server.register("leg", {"schema": TEXT})
    trip = '{"type": "record", "name": "Trip", "fields": [{"name": "leg", "type": "Leg"}]}'
    server.register("trip-value", {"schema": trip, "references": [{"name": "Leg", "subject": "leg", "version": 1}]})

    found = registry(server.url).by_subject("trip-value", "AVRO")

    assert (found.text, found.references) == (trip, (("Leg", TEXT),))
