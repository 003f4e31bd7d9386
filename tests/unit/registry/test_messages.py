import base64
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.unit.pipeline.rows.flight_proto import a_flight, file

from ottla.registry.client import Found
from ottla.registry.messages import MOST_FIELDS, reader
from ottla.registry.protobuf import WELL_KNOWN
from ottla.registry.undecodable import Undecodable

FLIGHT = b"\x02\x02"
"""Message indexes: the second message of the file."""


def found(described: FileDescriptorProto) -> Found:
    text = base64.b64encode(described.SerializeToString()).decode()
    references = tuple((name, base64.b64encode(data).decode()) for name, data in WELL_KNOWN.items())
    return Found(7, "PROTOBUF", text, references)


def test_a_message_becomes_json() -> None:
    assert reader(found(file()))(b"\0\0\0\0\7" + FLIGHT + a_flight().SerializeToString(), 5) == {
        "carrier": "UA",
        "delay": -3,
        "seen": "2013-01-01T05:00:00.000000000Z",
        "name": "United",
        "legs": [{"to": "JFK"}],
        "big": 2**64 - 1,
        "kind": "B",
        "tags": {"x": 1},
        "late": "1.5s",
    }


def test_fields_that_were_not_set_are_left_out_or_have_their_default() -> None:
    assert reader(found(file()))(FLIGHT, 0) == {"carrier": "", "legs": [], "big": 0, "kind": "A", "tags": {}}


def test_the_first_message_takes_one_byte_and_structs_are_what_they_stand_for() -> None:
    holder = FileDescriptorProto(name="h.proto", syntax="proto3", dependency=["google/protobuf/struct.proto"])
    message = holder.message_type.add(name="Holder")
    message.field.add(
        name="any", number=1, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Struct", label=Field.LABEL_OPTIONAL
    )
    given = struct_pb2.Struct()
    given.update({"a": [1.5, None, {"b": True}]})
    data = given.SerializeToString()

    assert reader(found(holder))(b"\0" + b"\x0a" + bytes([len(data)]) + data, 0) == {
        "any": {"a": [1.5, None, {"b": True}]}
    }


def wide(fields: int) -> FileDescriptorProto:
    made = FileDescriptorProto(name="wide.proto", syntax="proto3")
    outer, inner = made.message_type.add(name="Outer"), made.message_type.add(name="Inner")
    outer.field.add(name="all", number=1, type=Field.TYPE_MESSAGE, type_name=".Inner", label=Field.LABEL_REPEATED)
    for number in range(1, fields + 1):
        inner.field.add(name=f"f{number}", number=number, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    return made


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\x0a\x05a", "malformed Protobuf"),
        (b"\x02\x08", "no message with the indexes 4"),
        (b"\xfe\xff\xff\xff\x0f", "message indexes"),
        (b"\xff", "message indexes have no end"),
        (b"\0" + b"\x0a\x00" * (MOST_FIELDS // 1_000 + 2), "too many to read"),
        (b"\0" + b"\x0a\x00" * 100_000, "too much memory"),
    ],
)
def test_hostile_values_are_refused_at_a_bounded_cost(data: bytes, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        reader(found(wide(1_500)))(data, 0)


def test_a_schema_that_is_none_is_refused() -> None:
    broken: Any = Found(7, "PROTOBUF", 'syntax = "proto3";', ())
    with pytest.raises(ValueError, match="descriptors"):
        reader(broken)
