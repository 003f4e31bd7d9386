import base64
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.unit.pipeline.rows.flight_proto import a_flight, file, message_class

from ottla.pipeline.rows.decode_protobuf import _files_in, _files_of, _Protobuf
from ottla.pipeline.rows.protobuf_types import spark_schema
from ottla.pipeline.rows.python_decoding import Decode
from ottla.registry.client import Found
from ottla.registry.protobuf import files_from, message_indexes, message_of
from ottla.registry.undecodable import Undecodable

ROW: dict[str, Any] = {
    "carrier": "UA",
    "delay": -3,
    "seen": 1_357_016_400_000_000,
    "name": "United",
    "legs": [{"to": "JFK"}],
    "big": Decimal(2**64 - 1),
    "kind": "B",
    "tags": [("x", 1)],
    "late": timedelta(seconds=1.5),
}


def decoder(message: Any) -> Decode:
    return _Protobuf(_files_of(message.DESCRIPTOR.file), message.DESCRIPTOR.full_name, None).open()


def test_types_are_those_of_sparks_own_from_protobuf() -> None:
    assert spark_schema(message_class("demo.Flight").DESCRIPTOR).simpleString() == (
        "struct<carrier:string,delay:int,seen:timestamp,name:string,legs:array<struct<to:string>>,"
        "big:decimal(20,0),kind:string,tags:map<string,bigint>,late:interval day to second>"
    )


def test_a_message_becomes_a_row() -> None:
    assert decoder(message_class("demo.Flight"))(a_flight().SerializeToString()) == ROW


def test_what_was_not_set_is_null_if_the_message_knows_it_and_else_its_default() -> None:
    assert decoder(message_class("demo.Flight"))(b"") == {
        "carrier": "",
        "delay": None,
        "seen": None,
        "name": None,
        "legs": [],
        "big": Decimal(0),
        "kind": "A",
        "tags": [],
        "late": None,
    }


def test_a_number_without_a_name_keeps_its_digits() -> None:
    newer = message_class("demo.Flight")(kind=7)

    assert decoder(message_class("demo.Flight"))(newer.SerializeToString())["kind"] == "7"


def test_other_bytes_are_malformed() -> None:
    data = a_flight().SerializeToString()

    with pytest.raises(Undecodable, match="malformed Protobuf"):
        decoder(message_class("demo.Flight"))(data[:-1])


def test_a_required_field_that_is_missing_is_named() -> None:
    old = FileDescriptorProto(name="old.proto", syntax="proto2")
    message = old.message_type.add(name="Old")
    message.field.add(name="id", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REQUIRED)

    with pytest.raises(Undecodable, match="required"):
        decoder(message_class("Old", old))(b"")


def test_a_message_within_itself_has_no_column_type() -> None:
    tree = FileDescriptorProto(name="tree.proto", syntax="proto3")
    node = tree.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".Node", label=Field.LABEL_OPTIONAL)

    with pytest.raises(ValueError, match=r"Node\.next is within its own message"):
        spark_schema(message_class("Node", tree).DESCRIPTOR)


@pytest.mark.parametrize(
    ("data", "indexes", "start"),
    [(b"\0xyz", (0,), 1), (b"\2\2xyz", (1,), 2), (b"\4\2\0x", (1, 0), 3), (b"\2\x80\2x", (128,), 3)],
)
def test_message_indexes_are_counted_and_zigzag(data: bytes, indexes: tuple[int, ...], start: int) -> None:
    assert message_indexes(data, 0) == (indexes, start)


@pytest.mark.parametrize("data", [b"", b"\2", b"\4\2", b"\2\x80", b"\x80" * 9, b"\2\1", b"\1"])
def test_indexes_without_an_end_are_the_records_fault(data: bytes) -> None:
    with pytest.raises(Undecodable, match=r"(no end|among its message indexes)"):
        message_indexes(data, 0)


def test_descriptors_come_from_a_class_a_set_or_a_registry(tmp_path: Path) -> None:
    described = file()
    text = base64.b64encode(described.SerializeToString()).decode()
    wholes = [
        _files_of(message_class("demo.Flight").DESCRIPTOR.file),
        _files_in(FileDescriptorSet(file=[described]).SerializeToString()),
        files_from(Found(7, "PROTOBUF", text, ())),
    ]

    assert [message_of(files, "demo.Flight").full_name for files in wholes] == ["demo.Flight"] * 3
    assert message_of(wholes[0], None).full_name == "demo.Other"  # the first of the file
    with pytest.raises(ValueError, match=r"no Protobuf message demo\.Trip; there are: Flight, Other"):
        message_of(wholes[0], "demo.Trip")
    with pytest.raises(ValueError, match="no Protobuf descriptors"):
        _files_in(b"\xff\xff")
    with pytest.raises(ValueError, match="does not give the descriptors"):
        files_from(Found(7, "PROTOBUF", 'syntax = "proto3";', ()))


def test_a_schema_finds_what_it_imports() -> None:
    leg = FileDescriptorProto(name="as-it-was-registered", syntax="proto3")
    leg.message_type.add(name="Leg")
    trip = FileDescriptorProto(name="trip.proto", syntax="proto3", dependency=["leg.proto"])
    message = trip.message_type.add(name="Trip")
    message.field.add(name="leg", number=1, type=Field.TYPE_MESSAGE, type_name=".Leg", label=Field.LABEL_OPTIONAL)
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (leg, trip)]

    files = files_from(Found(3, "PROTOBUF", texts[1], (("leg.proto", texts[0]),)))

    assert spark_schema(message_of(files, None)).simpleString() == "struct<leg:struct<>>"
