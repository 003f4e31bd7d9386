"""Messages of Protobuf by the schemas of a registry: which message a record holds, and its descriptor."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ottla.registry.client import Found
from ottla.registry.undecodable import Undecodable

WELL_KNOWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
_MORE: Final = 0x80
_DEEPEST: Final = 100
"""Messages within messages, as many as Protobuf's parsers follow."""


def message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The message of its schema's file that a record holds, in the indexes of the wire format: the number of a message
    at the top, then of one nested in it, and so on. With it, where the message begins.

    Raises Undecodable if the bytes end before that.
    """
    count, start = _zigzag(value, start)
    if count > _DEEPEST:
        raise Undecodable(f"not the registry's wire format: {count} message indexes")
    if count == 0:  # the first message, the common case, in one byte
        return (0,), start
    found = []
    for _ in range(count):
        index, start = _zigzag(value, start)
        found.append(index)
    return tuple(found), start


def _zigzag(value: bytes, start: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if start >= len(value) or shift > 28:
            raise Undecodable("not the registry's wire format: its message indexes have no end")
        byte = value[start]
        start += 1
        number |= (byte & ~_MORE) << shift
        if not byte & _MORE:
            break
        shift += 7
    number = (number >> 1) ^ -(number & 1)
    if number < 0:
        raise Undecodable(f"not the registry's wire format: {number} among its message indexes")
    return number, start


def nested_name(files: tuple[bytes, ...], indexes: Sequence[int], schema_id: int) -> str:
    """The full name of a message by its indexes, in the last of the files."""
    described = FileDescriptorProto.FromString(files[-1])
    messages: Any = described.message_type
    names = [described.package] if described.package else []
    for index in indexes:
        if index >= len(messages):
            shown = ", ".join(map(str, indexes))
            raise Undecodable(f"the schema of id {schema_id} has no message with the indexes {shown}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def message_of(files: tuple[bytes, ...], name: str | None) -> Descriptor:
    """The message of that name, or the first of the last file. Raises ValueError."""
    pool = DescriptorPool()
    known = set()
    for content in files:
        file = FileDescriptorProto.FromString(content)
        for imported in file.dependency:
            if imported in WELL_KNOWN and imported not in known:
                pool.AddSerializedFile(WELL_KNOWN[imported])
                known.add(imported)
        if file.name not in known:
            try:
                pool.AddSerializedFile(content)
            except TypeError as error:
                raise ValueError(f"the Protobuf descriptors of {file.name} cannot be used: {error}") from error
            known.add(file.name)
    if name is None:
        last = FileDescriptorProto.FromString(files[-1])
        if not last.message_type:
            raise ValueError(f"the Protobuf file {last.name} has no message")
        name = ".".join(part for part in (last.package, last.message_type[0].name) if part)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        there = sorted(each.name for content in files for each in FileDescriptorProto.FromString(content).message_type)
        raise ValueError(f"there is no Protobuf message {name}; there are: {', '.join(there)}") from None


def files_from(found: Found) -> tuple[bytes, ...]:
    """What a registry answers if asked for descriptors. It may leave out a file's name, by which others import it."""
    named = [*found.references, (f"{found.schema_id}.proto", found.text)]
    files = []
    for name, text in named:
        if name in WELL_KNOWN:
            continue
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError, ValueError) as error:
            raise ValueError(f"the registry does not give the descriptors of the schema {name}: {error}") from error
        file.name = name
        files.append(file.SerializeToString())
    return tuple(files)
