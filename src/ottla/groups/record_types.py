"""How one type of record goes into the group coordinator's log and comes out of it. PURE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.protocol.primitives import Int32, Int64
from ottla.protocol.schema import Message, message, since
from ottla.protocol.versioned import decode_versioned, encode_versioned

Encoders: TypeAlias = Mapping[type, Callable[[Any], tuple[bytes, bytes | None]]]
"""Class of the record -> what makes its key and value. No value is a tombstone."""

Decoders: TypeAlias = Mapping[int, Callable[[bytes, bytes | None], Any]]
"""The int16 in front of a key -> what reads key and value. May raise `MalformedMessage` or `UnsupportedVersion`."""

_VALUE: Final = 0
"""The version of all values of `RecordType`s."""


class KeyFormat:
    """A key on the wire, whose fields are the first fields of the record and of its tombstone."""

    __slots__ = ("_fields", "_message", "_read")

    def __init__(self, message_type: type[Message], *fields: str) -> None:
        self._message, self._fields = message_type, fields
        self._read = attrgetter(*fields)

    def encode(self, number: int, record: tuple[Any, ...]) -> bytes:
        """The key of a record of this type."""
        return encode_versioned(self._message(**dict(zip(self._fields, record, strict=False))), number)

    def decode(self, key: bytes) -> tuple[Any, ...]:
        """The first fields of the record."""
        found = self._read(decode_versioned(self._message, key))
        return found if len(self._fields) > 1 else (found,)


class RecordType(NamedTuple):
    """One type of record: a NamedTuple in here, a key and a value on the wire, and a tombstone with the key alone.

    write: the record -> its value. read: the fields of the key, and the value -> the record.
    """

    number: int
    """The int16 in front of the key."""
    key: KeyFormat
    record: type
    tombstone: type
    value: type[Message]
    write: Callable[[Any], Message]
    read: Callable[..., Any]

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        return self.key.encode(self.number, record), encode_versioned(self.write(record), _VALUE)

    def encode_tombstone(self, record: Any) -> tuple[bytes, None]:
        """The key of a tombstone."""
        return self.key.encode(self.number, record), None

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """The record, or its tombstone."""
        fields = self.key.decode(key)
        return self.tombstone(*fields) if value is None else self.read(*fields, decode_versioned(self.value, value))


def encoders(types: Collection[RecordType]) -> Encoders:
    """The encoders of records and tombstones, by class."""
    return MappingProxyType(
        {
            cls: encode
            for each in types
            for cls, encode in ((each.record, each.encode), (each.tombstone, each.encode_tombstone))
        }
    )


def decoders(types: Collection[RecordType]) -> Decoders:
    """The decoders, by the number of the type."""
    return MappingProxyType({each.number: each.decode for each in types})


# --- shared by consumer, share and streams groups, whose types of records differ by number ----------------------


@message(versions=(3, 23))
class GroupKey(Message):
    """The key of a record about a group as a whole; the version in front gives the type of record."""

    group_id: str


@message(versions=(5, 22))
class GroupMemberKey(Message):
    """The key of a record about a member; the version in front gives the type of record."""

    group_id: str
    member_id: str


@message(versions=(0, 0), flexible=0)
class TargetAssignmentMetadataValue(Message):
    """The epoch of a target assignment, and when it was computed (0: not known; Kafka writes it since 4.3)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = since(0, tag=0, default=0, ignorable=True)


GROUP_KEY: Final = KeyFormat(GroupKey, "group_id")
MEMBER_KEY: Final = KeyFormat(GroupMemberKey, "group_id", "member_id")


def target_epoch_type(number: int, record: type, tombstone: type) -> RecordType:
    """The type of the records `(group_id, epoch, computed_ms)` about the epoch of a target assignment."""

    def write(each: tuple[str, int, int]) -> Message:
        _, epoch, computed_ms = each
        return TargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=computed_ms)

    def read(group_id: str, value: TargetAssignmentMetadataValue) -> Any:
        return record(group_id, value.assignment_epoch, value.assignment_timestamp)

    return RecordType(number, GROUP_KEY, record, tombstone, TargetAssignmentMetadataValue, write, read)
