"""Protobuf to columns: by descriptors, or by the ids of a registry.

Decoded in Python: Spark's `from_protobuf` needs a jar that its package lacks, and knows no registry.

Descriptors are what `protoc --include_imports --descriptor_set_out=flights.desc flights.proto` writes; a module that
protoc made (`flights_pb2`) has them in it.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
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
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame

from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.protobuf_types import row_of, spark_schema
from ottla.pipeline.rows.python_decoding import Decode, decode_column
from ottla.pipeline.rows.schema_registry import Found, Registry, framed
from ottla.pipeline.rows.undecodable import Undecodable

PROTOBUF: Final = "PROTOBUF"

_WELL_KNOWN: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
_MORE: Final = 0x80


def from_protobuf(
    records: DataFrame,
    message: str | type[Message] | None = None,
    *,
    descriptors: bytes | str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    subject: str | None = None,
    version: int | None = None,
    column: str = "value",
    keep: tuple[str, ...] = (),
) -> Checked:
    """The Protobuf message in `column` as columns, beside the columns named in `keep`.

    `message` is a class that protoc made, or the full name of a message in `descriptors` (the bytes of a descriptor
    set, or the path of its file) or in the registry's schema of `subject`, whose first message it is if left out. With
    a registry, records are in its wire format, and their own schema names their message: a record of another message
    is rejected, as is an id that the registry does not know. An unreachable registry fails the task.

    Raises ValueError for a message that is not there, or has no columns in Spark; SubjectError, RegistryError.
    """
    if isinstance(message, type):
        files, name = _files_of(message.DESCRIPTOR.file), message.DESCRIPTOR.full_name
    elif descriptors is not None and message is not None:
        content = descriptors if isinstance(descriptors, bytes) else Path(descriptors).read_bytes()
        files, name = _files_in(content), message
    elif registry is not None and subject is not None:
        files = _files_from(registry.by_subject(subject, PROTOBUF, version))
        name = message or _message(files, None).full_name
    else:
        raise ValueError(
            "from_protobuf needs a message class, descriptors and the name of a message, or a registry and a subject"
        )
    schema = spark_schema(_message(files, name))
    return decode_column(records, schema, _Protobuf(files, name, registry), column=column, keep=keep)


def message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The message of its schema's file that a record holds, in the indexes of the wire format: the number of a message
    at
    the top, then of one nested in it, and so on. With it, where the message begins.

    Raises Undecodable if the bytes end before that.
    """
    count, start = _zigzag(value, start)
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


@dataclass(frozen=True, slots=True)
class _Protobuf:
    """Messages of the type `name`. `files` are serialized descriptors, each after those it imports."""

    files: tuple[bytes, ...]
    name: str
    registry: Registry | None

    def open(self) -> Decode:
        wanted = _message(self.files, self.name)
        message_class, convert = GetMessageClass(wanted), row_of(wanted)
        registry = self.registry
        names: dict[tuple[int, tuple[int, ...]], str] = {}

        def parse(data: bytes) -> dict[str, Any]:
            try:
                message: Any = message_class.FromString(data)
            except DecodeError as error:
                raise Undecodable(f"malformed Protobuf: {error}") from error
            unset = message.FindInitializationErrors()
            if unset:
                raise Undecodable(f"missing required field '{unset[0]}'")
            row: dict[str, Any] = convert(message)
            return row

        def parse_framed(value: bytes) -> dict[str, Any]:
            head = framed(value)
            indexes, start = message_indexes(value, head.start)
            held = names.get((head.schema_id, indexes))
            if held is None:
                assert registry is not None
                files = _files_from(registry.by_id(head.schema_id, PROTOBUF))
                held = names[head.schema_id, indexes] = _nested(files, indexes, head.schema_id)
            if held != self.name:
                raise Undecodable(f"the record holds a message {held}, not {self.name}")
            return parse(value[start:])

        return parse if registry is None else parse_framed


def _nested(files: tuple[bytes, ...], indexes: Sequence[int], schema_id: int) -> str:
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


def _message(files: tuple[bytes, ...], name: str | None) -> Descriptor:
    """The message of that name, or the first of the last file. Raises ValueError."""
    pool = DescriptorPool()
    known = set()
    for content in files:
        file = FileDescriptorProto.FromString(content)
        for imported in file.dependency:
            if imported in _WELL_KNOWN and imported not in known:
                pool.AddSerializedFile(_WELL_KNOWN[imported])
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


def _files_of(file: Any) -> tuple[bytes, ...]:
    """A file descriptor's content, after that of the files it imports."""
    found: dict[str, bytes] = {}

    def add(each: Any) -> None:
        for imported in each.dependencies:
            add(imported)
        found.setdefault(each.name, each.serialized_pb)

    add(file)
    return tuple(content for name, content in found.items() if name not in _WELL_KNOWN)


def _files_in(descriptor_set: bytes) -> tuple[bytes, ...]:
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise ValueError(
            f"these are no Protobuf descriptors, as protoc --descriptor_set_out writes them: {error}"
        ) from error
    return tuple(file.SerializeToString() for file in files if file.name not in _WELL_KNOWN)


def _files_from(found: Found) -> tuple[bytes, ...]:
    """What a registry answers if asked for descriptors. It may leave out a file's name, by which others import it."""
    named = [*found.references, (f"{found.schema_id}.proto", found.text)]
    files = []
    for name, text in named:
        if name in _WELL_KNOWN:
            continue
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError, ValueError) as error:
            raise ValueError(f"the registry does not give the descriptors of the schema {name}: {error}") from error
        file.name = name
        files.append(file.SerializeToString())
    return tuple(files)
