"""A Protobuf message made without protoc, with a field of every kind that matters.

message Other { int32 x = 1; }
message Flight {
  message Leg { string to = 1; }
  string carrier = 1;          optional sint32 delay = 2;     google.protobuf.Timestamp seen = 3;
  google.protobuf.StringValue name = 4;                       repeated Leg legs = 5;
  uint64 big = 6;              Kind kind = 7;                 map<string, int64> tags = 8;
  google.protobuf.Duration late = 9;
}
enum Kind { A = 0; B = 1; }
"""

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_WELL_KNOWN = (duration_pb2, timestamp_pb2, wrappers_pb2)


def file() -> FileDescriptorProto:
    made = FileDescriptorProto(
        name="flights.proto",
        package="demo",
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in _WELL_KNOWN],
    )
    other = made.message_type.add(name="Other")
    other.field.add(name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    flight = made.message_type.add(name="Flight")

    def add(name: str, kind: Any, of: str | None = None, label: Any = Field.LABEL_OPTIONAL, **more: Any) -> None:
        flight.field.add(name=name, number=len(flight.field) + 1, type=kind, type_name=of, label=label, **more)

    add("carrier", Field.TYPE_STRING)
    add("delay", Field.TYPE_SINT32, proto3_optional=True, oneof_index=0)
    flight.oneof_decl.add(name="_delay")
    add("seen", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("name", Field.TYPE_MESSAGE, ".google.protobuf.StringValue")
    add("legs", Field.TYPE_MESSAGE, ".demo.Flight.Leg", Field.LABEL_REPEATED)
    add("big", Field.TYPE_UINT64)
    add("kind", Field.TYPE_ENUM, ".demo.Kind")
    add("tags", Field.TYPE_MESSAGE, ".demo.Flight.TagsEntry", Field.LABEL_REPEATED)
    add("late", Field.TYPE_MESSAGE, ".google.protobuf.Duration")
    leg = flight.nested_type.add(name="Leg")
    leg.field.add(name="to", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry = flight.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    kinds = made.enum_type.add(name="Kind")
    kinds.value.add(name="A", number=0)
    kinds.value.add(name="B", number=1)
    return made


def message_class(name: str, described: FileDescriptorProto | None = None) -> Any:
    pool = DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile((described or file()).SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


def a_flight() -> Any:
    flight = message_class("demo.Flight")(carrier="UA", delay=-3, big=2**64 - 1, kind=1)
    flight.seen.FromMilliseconds(1_357_016_400_000)
    flight.name.value = "United"
    flight.legs.add(to="JFK")
    flight.tags["x"] = 1
    flight.late.FromMilliseconds(1_500)
    return flight
