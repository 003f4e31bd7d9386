"""The records of KRaft's metadata log, `__cluster_metadata-0`, and of its snapshots, as `ottla log dump` shows them.

Values that are secrets do not show: keys of SCRAM by their size, settings by their names.
"""

import re
from typing import Final
from uuid import UUID

from ottla.cli.log.fields import Fields, shown
from ottla.cli.terminal.output import Row
from ottla.errors import CorruptMessage
from ottla.ids import uuid_to_text
from ottla.protocol.errors import ProtocolError
from ottla.protocol.metadata_records import ConfigRecord, decode_control, decode_record
from ottla.protocol.schema import Struct, fields_of
from ottla.records.record import Record

HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(r"password|secret|credential|jaas\.config|keystore\.key|private", re.IGNORECASE)
"""Settings whose values Kafka keeps as they were given, and nobody should find in a ticket."""


def spelled_out(record: Record, *, is_control: bool) -> Row:
    """A record as a row: offset, kind, version, fields. Fields that the version lacks, and tags left out, are absent.

    Raises `CorruptMessage`, which names what cannot be read.
    """
    if record.value is None:
        raise CorruptMessage("the record has no value")
    try:
        found, version = decode_control(record.key or b"", record.value) if is_control else decode_record(record.value)
    except ProtocolError as problem:
        raise CorruptMessage(str(problem)) from problem
    fields = _fields(found, version)
    if isinstance(found, ConfigRecord) and found.value is not None and _SECRET.search(found.name):
        fields["value"] = HIDDEN
    return {"offset": record.offset, "kind": type(found).__name__, "version": version, "fields": fields}


def _fields(found: Struct, version: int) -> Fields:
    fields = Fields()
    for field in fields_of(type(found)):
        value = getattr(found, field.name)
        if field.in_version(version) and not (field.tag is not None and field.is_default(value)):
            fields[field.name] = _value(value, version)
    return fields


def _value(value: object, version: int) -> object:
    if isinstance(value, Struct):
        return _fields(value, version)
    if isinstance(value, UUID):  # as Kafka's tools print it
        return uuid_to_text(value)
    if isinstance(value, list):
        return [_value(each, version) for each in value]
    return shown(value)
