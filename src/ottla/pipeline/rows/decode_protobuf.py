"""Protobuf to columns: by descriptors, or by the ids of a registry.

Decoded in Python: Spark's `from_protobuf` needs a jar that its package lacks, and knows no registry.

Descriptors are what `protoc --include_imports --descriptor_set_out=flights.desc flights.proto` writes; a module that
protoc made (`flights_pb2`) has them in it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame

from ottla.pipeline.rows.checked import Checked
from ottla.pipeline.rows.protobuf_types import row_of, spark_schema
from ottla.pipeline.rows.python_decoding import Decode, decode_column
from ottla.registry.client import Registry, framed
from ottla.registry.protobuf import WELL_KNOWN, files_from, message_indexes, message_of, nested_name
from ottla.registry.undecodable import Undecodable

PROTOBUF: Final = "PROTOBUF"


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
        files = files_from(registry.by_subject(subject, PROTOBUF, version))
        name = message or message_of(files, None).full_name
    else:
        raise ValueError(
            "from_protobuf needs a message class, descriptors and the name of a message, or a registry and a subject"
        )
    schema = spark_schema(message_of(files, name))
    return decode_column(records, schema, _Protobuf(files, name, registry), column=column, keep=keep)


@dataclass(frozen=True, slots=True)
class _Protobuf:
    """Messages of the type `name`. `files` are serialized descriptors, each after those it imports."""

    files: tuple[bytes, ...]
    name: str
    registry: Registry | None

    def open(self) -> Decode:
        wanted = message_of(self.files, self.name)
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
                files = files_from(registry.by_id(head.schema_id, PROTOBUF))
                held = names[head.schema_id, indexes] = nested_name(files, indexes, head.schema_id)
            if held != self.name:
                raise Undecodable(f"the record holds a message {held}, not {self.name}")
            return parse(value[start:])

        return parse if registry is None else parse_framed


def _files_of(file: Any) -> tuple[bytes, ...]:
    """A file descriptor's content, after that of the files it imports."""
    found: dict[str, bytes] = {}

    def add(each: Any) -> None:
        for imported in each.dependencies:
            add(imported)
        found.setdefault(each.name, each.serialized_pb)

    add(file)
    return tuple(content for name, content in found.items() if name not in WELL_KNOWN)


def _files_in(descriptor_set: bytes) -> tuple[bytes, ...]:
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise ValueError(
            f"these are no Protobuf descriptors, as protoc --descriptor_set_out writes them: {error}"
        ) from error
    return tuple(file.SerializeToString() for file in files if file.name not in WELL_KNOWN)
