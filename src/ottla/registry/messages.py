"""Protobuf messages as values of JSON, at a cost that is bounded.

    int*, uint*, fixed*   numbers        enum     its name, or its number      bytes   base64
    Timestamp   ISO 8601, in UTC         Duration "1.5s"                       wrappers   what they hold
    Struct, Value, ListValue   what they stand for                             map     an object

Names of fields are those of the schema. A field that knows whether it was set (`optional`, messages, members of a
`oneof`) is left out if it was not; any other one has its default.

Source: Protobuf's documentation, "ProtoJSON Format", except for names and for numbers of 64 bits, which stay numbers.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.registry.client import Found
from ottla.registry.protobuf import files_from, message_indexes, message_of, nested_name
from ottla.registry.undecodable import Undecodable

MOST_FIELDS: Final = 200_000
"""Fields and elements of a message that are read: each may have defaults by the hundred, which take no bytes."""
MOST_BYTES: Final = 256 << 20
"""Memory that parsing may take: an empty message in a list is two bytes, and becomes an object with room for all of
its fields."""
MOST_MESSAGES: Final = 20
"""Messages of one schema whose readers are kept."""
_OBJECT_BYTES: Final = 64
_FIELD_BYTES: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


def reader(found: Found) -> Callable[[bytes, int], Any]:
    """What reads values of a schema, from the message indexes on. Raises ValueError for a schema that is none."""
    files = files_from(found)
    message_of(files, None)
    known: dict[tuple[int, ...], tuple[Any, int]] = {}

    def read(value: bytes, start: int) -> Any:
        indexes, start = message_indexes(value, start)
        if indexes not in known:
            if len(known) >= MOST_MESSAGES:
                known.clear()
            descriptor = message_of(files, nested_name(files, indexes, found.schema_id))
            known[indexes] = GetMessageClass(descriptor), MOST_BYTES // _bytes_per_byte(descriptor)
        message_class, most = known[indexes]
        if len(value) - start > most:
            raise Undecodable(f"{len(value) - start} bytes of this schema's message may take too much memory to read")
        try:
            message = message_class.FromString(value[start:])
        except DecodeError as error:
            raise Undecodable(f"malformed Protobuf: {error}") from error
        return _Walk().message(message)

    return read


def _bytes_per_byte(descriptor: Descriptor) -> int:
    """Memory that a byte of a message may take: half an object of the largest message that can be in it."""
    seen: dict[str, int] = {}
    left = [descriptor]
    while left:
        each = left.pop()
        if each.full_name not in seen:
            seen[each.full_name] = len(each.fields)
            left += [field.message_type for field in each.fields if field.message_type is not None]
    return _OBJECT_BYTES + _FIELD_BYTES * max(seen.values())


class _Walk:
    """Counts while it walks one message."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def message(self, message: Any) -> Any:
        """The message as a value of JSON. Raises Undecodable for one that has too much in it."""
        descriptor: Descriptor = message.DESCRIPTOR
        special = _SPECIAL.get(descriptor.full_name)
        if special is not None:
            return special(self, message)
        self._count(len(descriptor.fields))
        found = {}
        for field in descriptor.fields:
            if not field.is_repeated and field.has_presence and not message.HasField(field.name):
                continue
            found[field.name] = self._field(field, getattr(message, field.name))
        return found

    def _count(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise Undecodable(f"the message has more than {MOST_FIELDS:,} fields and elements, too many to read here")

    def _field(self, field: FieldDescriptor, value: Any) -> Any:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            self._count(len(value))
            element = inner.fields_by_name["value"]
            return {_name(key): self._one(element, value[key]) for key in value}
        if field.is_repeated:
            self._count(len(value))
            return [self._one(field, each) for each in value]
        return self._one(field, value)

    def _one(self, field: FieldDescriptor, value: Any) -> Any:
        if field.message_type is not None:
            return self.message(value)
        if field.type == FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            known = field.enum_type.values_by_number.get(value)
            return known.name if known else value
        if field.type == FieldDescriptor.TYPE_BYTES:
            return base64.b64encode(value).decode()
        return value

    def wrapped(self, message: Any) -> Any:
        """What a wrapper holds."""
        return self._one(message.DESCRIPTOR.fields_by_name["value"], message.value)

    def value(self, message: Any) -> Any:
        """A value of google.protobuf.Struct."""
        kind = message.WhichOneof("kind")
        if kind in (None, "null_value"):
            return None
        found = getattr(message, kind)
        return self.message(found) if kind in ("struct_value", "list_value") else found

    def struct(self, message: Any) -> Any:
        """An object of any names."""
        self._count(len(message.fields))
        return {name: self.value(message.fields[name]) for name in message.fields}

    def values(self, message: Any) -> Any:
        """A list of any values."""
        self._count(len(message.values))
        return [self.value(each) for each in message.values]


def _name(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _timestamp(message: Any) -> Any:
    try:
        text = (_EPOCH + timedelta(seconds=message.seconds)).strftime("%Y-%m-%dT%H:%M:%S").zfill(19)
    except OverflowError:
        return {"seconds": message.seconds, "nanos": message.nanos}
    return f"{text}.{message.nanos:09d}Z"


def _duration(message: Any) -> str:
    nanos = message.seconds * 10**9 + message.nanos
    whole, rest = divmod(abs(nanos), 10**9)
    return f"{'-' if nanos < 0 else ''}{whole}" + (f".{rest:09d}".rstrip("0") if rest else "") + "s"


_SPECIAL: Final[dict[str, Callable[[_Walk, Any], Any]]] = {
    f"{_PACKAGE}Timestamp": lambda walk, message: _timestamp(message),
    f"{_PACKAGE}Duration": lambda walk, message: _duration(message),
    f"{_PACKAGE}Struct": _Walk.struct,
    f"{_PACKAGE}Value": _Walk.value,
    f"{_PACKAGE}ListValue": _Walk.values,
    **dict.fromkeys(_WRAPPERS, _Walk.wrapped),
}
