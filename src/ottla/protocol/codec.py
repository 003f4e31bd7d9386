"""The reference codec: walks the declarations, one field at a time.

It exists to be read and to be compared with: `ottla.protocol.compiled` must give the same bytes, the same messages and
the same errors, and is what the broker uses.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from ottla.protocol import primitives
from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.limits import BYTES_PER_ELEMENT_SHIFT, max_elements
from ottla.protocol.primitives import (
    MAX_STRING,
    Buffer,
    Encoded,
    Piece,
    Primitive,
    read_uvarint,
    shortened,
    uvarint,
)
from ottla.protocol.schema import Array, Field, Message, Struct, Type, check_version, fields_of

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)


def encode(message: Message, version: int) -> list[Piece]:
    """The body of `message` in `version`, as pieces to be sent one after the other.

    Everything but records is in `bytearray`s; the value of a records field is passed through as it is, flattened
    if it is a list or tuple. Raises `UnsupportedVersion`, or `UnencodableMessage` for a value that does not fit its
    field or that this version cannot carry.
    """
    check_version(type(message), version)
    writer = _Writer(version, version >= message.FLEXIBLE_SINCE)
    try:
        writer.struct(message)
    except (struct.error, UnicodeEncodeError, AttributeError, TypeError, ValueError) as error:
        raise UnencodableMessage(f"{type(message).__name__} version {version}: {error}") from error
    return writer.pieces


def decode(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> M:
    """The message of class `cls` and `version` that starts at `offset`; bytes after it are ignored, as Kafka does.

    Raises `UnsupportedVersion`, or `MalformedMessage` for anything that is not such a message.
    """
    return decode_from(cls, buffer, version, offset)[0]


def decode_from(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Like `decode`; also returns the position after the message."""
    check_version(cls, version)
    reader = _Reader(memoryview(buffer), offset, version, version >= cls.FLEXIBLE_SINCE, max_elements(cls))
    try:
        message = reader.struct(cls)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error
    except MalformedMessage as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error
    return message, reader.pos


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.out = bytearray()
        self.pieces: list[Piece] = [self.out]

    def struct(self, value: Struct) -> None:
        tagged: list[tuple[int, Field, Any]] = []
        for field in fields_of(type(value)):
            content = getattr(value, field.name)
            if not field.in_version(self.version):
                if not field.ignorable and not field.is_default(content):
                    raise UnencodableMessage(
                        f"{type(value).__name__}.{field.name} is set, which version {self.version} cannot carry"
                    )
            elif field.tag is not None:
                if not field.is_default(content):
                    tagged.append((field.tag, field, content))
            else:
                self.field(field, content)
        if self.flexible:
            self.out += uvarint(len(tagged))
            for tag, field, content in sorted(tagged, key=lambda entry: entry[0]):
                inner = _Writer(self.version, self.flexible)
                inner.field(field, content)
                if len(inner.pieces) > 1:
                    raise TypeError(f"{field.name}: records cannot be in a tagged field")
                self.out += uvarint(tag) + uvarint(len(inner.out)) + inner.out

    def field(self, field: Field, value: Any) -> None:
        nullable = field.nullable_in(self.version)
        if value is None and not nullable:
            raise UnencodableMessage(f"{field.name} cannot be null in version {self.version}")
        if isinstance(field.type, type) and nullable:
            self.out += struct.pack(">b", field.null_flag if value is None else 1)
            if value is None:
                return
        if field.is_error_text and value is not None:
            value = shortened(value.encode()).decode()
        self.value(field.type, value, self.flexible and field.compact)

    def value(self, kind: Type, value: Any, compact: bool) -> None:
        if isinstance(kind, Array):
            self.length(None if value is None else len(value), compact, "i")
            for element in () if value is None else value:
                self.value(kind.element, element, compact)
        elif isinstance(value, Encoded):
            self.out += value
        elif not isinstance(kind, Primitive):
            self.struct(value)
        elif kind is primitives.STRING:
            raw = None if value is None else value.encode()
            if raw is not None and len(raw) > MAX_STRING:
                raise UnencodableMessage(f"a string of {len(raw)} bytes is too long")
            self.length(None if raw is None else len(raw), compact, "h")
            self.out += raw or b""
        elif kind is primitives.BYTES:
            self.length(None if value is None else len(value), compact, "i")
            self.out += value or b""
        elif kind is primitives.RECORDS:
            self.records(value, compact)
        elif kind is primitives.UUID:
            self.out += value.bytes
        else:
            self.out += struct.pack(">" + kind.code, value)

    def length(self, length: int | None, compact: bool, code: str) -> None:
        if compact:
            self.out += uvarint(0 if length is None else length + 1)
        else:
            self.out += struct.pack(">" + code, -1 if length is None else length)

    def records(self, value: Any, compact: bool) -> None:
        slices = value if isinstance(value, list | tuple) else () if value is None else (value,)
        self.length(None if value is None else sum(map(len, slices)), compact, "i")
        if value is not None:
            self.out = bytearray()
            self.pieces += (*slices, self.out)


class _Reader:
    def __init__(self, buffer: memoryview, pos: int, version: int, flexible: bool, max_elements: int | None) -> None:
        self.buffer = buffer
        self.pos = pos
        self.end = len(buffer)
        self.max_elements = max_elements
        self.elements = 0
        self.version = version
        self.flexible = flexible

    def struct(self, cls: type[S]) -> S:
        result = cls.__new__(cls)
        tagged: dict[int, Field] = {}
        for field in fields_of(cls):
            if field.tagged_in(self.version) and field.tag is not None:
                tagged[field.tag] = field
            if field.in_version(self.version) and field.tag is None:
                setattr(result, field.name, self.field(field))
            else:
                setattr(result, field.name, field.make_default())
        if self.flexible:
            count = self.uvarint()
            self.count_elements(count)
            for _ in range(count):
                tag, size = self.uvarint(), self.uvarint()
                if tag not in tagged:
                    self.take(size)
                    continue
                stop = self.pos + size
                setattr(result, tagged[tag].name, self.field(tagged[tag]))
                if self.pos != stop:
                    raise MalformedMessage(f"tagged field {tag} does not have the {size} bytes it claims")
        return result

    def field(self, field: Field) -> Any:
        nullable = field.nullable_in(self.version)
        if isinstance(field.type, type) and nullable and self.scalar("b") <= field.null_flag:
            return None
        value = self.value(field.type, self.flexible and field.compact)
        if value is None and not nullable:
            raise MalformedMessage(f"{field.name} is null")
        return value

    def value(self, kind: Type, compact: bool) -> Any:
        if isinstance(kind, Array):
            return self.array(kind.element, compact)
        if not isinstance(kind, Primitive):
            return self.struct(kind)
        if kind is primitives.STRING:
            raw = self.sized(self.length(compact, "h"))
            if raw is None:
                return None
            if len(raw) > MAX_STRING:
                raise MalformedMessage(f"a string of {len(raw)} bytes is too long")
            return str(raw, "utf-8")
        if kind is primitives.BYTES:
            raw = self.sized(self.length(compact, "i"))
            return None if raw is None else bytes(raw)
        if kind is primitives.RECORDS:
            return self.sized(self.length(compact, "i"))
        if kind is primitives.UUID:
            return primitives.UUIDS[bytes(self.take(16))]
        return self.scalar(kind.code)

    def array(self, element: Type, compact: bool) -> list[Any] | None:
        count = self.length(compact, "i")
        if count < 0:
            return None
        # Nothing in an array is shorter than a byte: an honest count is never above what is left.
        if count > self.end - self.pos:
            raise MalformedMessage(f"an array claims {count} elements, {self.end - self.pos} bytes are left")
        size = element.size if isinstance(element, Primitive) and element is not primitives.UUID else 0
        if count * size > self.end - self.pos:
            raise MalformedMessage(f"an array claims {count} elements, {self.end - self.pos} bytes are left")
        self.count_elements(count >> BYTES_PER_ELEMENT_SHIFT if size == 1 else count)
        elements = []
        for _ in range(count):
            value = self.value(element, compact)
            if value is None:
                raise MalformedMessage("an element of an array is null")
            elements.append(value)
        return elements

    def count_elements(self, count: int) -> None:
        self.elements += count
        if self.max_elements is not None and self.elements > self.max_elements:
            raise MalformedMessage(f"more than {self.max_elements} elements in one request")

    def length(self, compact: bool, code: str) -> int:
        """A length or count; negative stands for null, whichever negative number it is, as in Kafka."""
        return self.uvarint() - 1 if compact else int(self.scalar(code))

    def sized(self, length: int) -> memoryview | None:
        return None if length < 0 else self.take(length)

    def take(self, length: int) -> memoryview:
        if length > self.end - self.pos:
            raise MalformedMessage(f"{length} bytes are claimed, {self.end - self.pos} are left")
        start = self.pos
        self.pos += length
        return self.buffer[start : self.pos]

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(">" + code, self.buffer, self.pos)
        self.pos += struct.calcsize(">" + code)
        return value

    def uvarint(self) -> int:
        value, self.pos = read_uvarint(self.buffer, self.pos)
        return value
