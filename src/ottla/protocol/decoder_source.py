"""Writes the source of a flat decode function; `ottla.protocol.compiled` runs it.

What comes out for the response of Heartbeat, version 4:

    def decode_HeartbeatResponse_4(buf, pos):
        end = len(buf)
        o0 = new(HeartbeatResponse)
        o0.throttle_time_ms, o0.error_code, n1 = u_ihB(buf, pos)
        pos += 7
        if n1:
            if n1 > 127: n1, pos = more(buf, pos, n1)
            pos = skip_tags(buf, pos, n1)
        if pos > end: raise Malformed(...)
        return o0, pos
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.protocol import primitives
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.limits import BYTES_PER_ELEMENT_SHIFT, STEP_MASK, max_elements
from ottla.protocol.primitives import MAX_STRING, Primitive, continue_uvarint, skip_tagged_fields
from ottla.protocol.schema import Array, Field, Message, Struct, Type, fields_of


def _truncated(pos: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"{pos - end} bytes are missing")


def _refuse_count(count: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"an array claims {count} elements, {left} bytes are left")


def _refuse_elements(limit: int) -> MalformedMessage:
    return MalformedMessage(f"more than {limit} elements in one request")


def _refuse_long_string(length_code: int) -> None:
    if length_code > MAX_STRING + 1:
        raise MalformedMessage(f"a string of {length_code - 1} bytes is too long")


def _refuse_null(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name} is null")


def _refuse_tag(tag: int, size: int) -> MalformedMessage:
    return MalformedMessage(f"tagged field {tag} does not have the {size} bytes it claims")


def holds_records(cls: type[Struct]) -> bool:
    """Whether a records field is anywhere inside `cls`."""
    for field in fields_of(cls):
        kind: Type = field.type
        while isinstance(kind, Array):
            kind = kind.element
        if kind is primitives.RECORDS or (isinstance(kind, type) and holds_records(kind)):
            return True
    return False


class DecoderSource:
    """`text()` is the function; `scope` its globals."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        """`in_steps`: a generator with the same result, which yields after every few elements."""
        self.in_steps = in_steps
        self.cls = cls
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_SINCE
        # Slicing and decoding `bytes` is nearly twice as fast as a memoryview. Only a message with records is worth
        # reading in place; anything else is copied once.
        self.in_place = holds_records(cls)
        self.max_elements = max_elements(cls)
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.pending: list[tuple[str, str]] = []  # (struct format, target) of the current fixed-width run
        self.after: list[str] = []  # lines for after the run, such as turning 16 bytes into a UUID
        self.scope: dict[str, Any] = {
            "new": object.__new__,
            "UUIDS": primitives.UUIDS,
            "more": continue_uvarint,
            "skip_tags": skip_tagged_fields,
            "truncated": _truncated,
            "refuse_count": _refuse_count,
            "refuse_elements": _refuse_elements,
            "refuse_long_string": _refuse_long_string,
            "refuse_null": _refuse_null,
            "refuse_tag": _refuse_tag,
            "unpack_from": struct.unpack_from,
        }

    def text(self) -> str:
        """The source of the function."""
        head = [f"def decode_{self.cls.__name__}_{self.version}(buf, pos):"]
        if self.in_place:
            head.append("    if buf.__class__ is not memoryview: buf = memoryview(buf)")
        else:
            head.append("    if buf.__class__ is not bytes: buf = bytes(buf)")
        head.append("    end = len(buf)")
        if self.max_elements is not None:
            head.append(f"    room = {self.max_elements}")
        result = self.struct(self.cls)
        self.flush()
        self.line("if pos > end: raise truncated(pos, end)")
        self.line(f"return {result}, pos")
        if self.in_steps:
            self.line("yield")  # a generator even without arrays
        return "\n".join(head + self.lines)

    # -- writing ---------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        """A local name that is not in use yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def fixed(self, code: str, target: str) -> None:
        self.pending.append((code, target))

    def flush(self) -> None:
        """Write the reading of the pending run."""
        if not self.pending:
            return
        after, self.after = self.after, []
        self.read_run()
        for line in after:
            self.line(line)

    def read_run(self) -> None:
        """Write one `unpack` for all fields of the pending run."""
        codes = "".join(code for code, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        self.pending = []
        if codes == "B":
            self.line(f"{targets} = buf[pos]")
            self.line("pos += 1")
            return
        layout = struct.Struct(">" + codes)
        self.scope[f"u_{codes.replace('?', '_')}"] = layout.unpack_from
        comma = "," if ", " not in targets else ""
        self.line(f"{targets}{comma} = u_{codes.replace('?', '_')}(buf, pos)")
        self.line(f"pos += {layout.size}")

    def uvarint(self, *, often_long: bool = False) -> str:
        """Write the reading of an unsigned varint, fused into the pending run; the name that holds it.

        Without a call for up to three bytes (two million) if it is `often_long`, else for one.
        """
        name = self.name("n")
        self.fixed("B", name)
        self.flush()
        if not often_long:
            self.line(f"if {name} > 127: {name}, pos = more(buf, pos, {name})")
            return name
        # The top bit of every byte but the last is in the sum: 1 << 7 after one, 1 << 7 | 1 << 14 after two.
        second, third = self.name("n"), self.name("n")
        self.line(f"if {name} > 127:")
        self.line(f"    {second} = buf[pos]")
        self.line(f"    if {second} < 128: {name} += ({second} << 7) - {1 << 7}; pos += 1")
        self.line("    else:")
        self.line(f"        {third} = buf[pos + 1]")
        self.line(f"        if {third} < 128:")
        self.line(f"            {name} += ({second} << 7) + ({third} << 14) - {1 << 7 | 1 << 14}; pos += 2")
        self.line(f"        else: {name}, pos = more(buf, pos, {name})")
        return name

    def constant(self, value: Any) -> str:
        """A literal, or the name of a global, for a default."""
        if value is None or (isinstance(value, int | str) and type(value) in (int, bool, str)):
            return repr(value)
        if isinstance(value, list) and not value:
            return "[]"
        name = self.name("default")
        self.scope[name] = value
        return name

    def take_room(self, count: str) -> None:
        """Write the check that a request stays within its limit of elements."""
        if self.max_elements is not None:
            self.line(f"room -= {count}")
            self.line(f"if room < 0: raise refuse_elements({self.max_elements})")

    # -- walking ---------------------------------------------------------------------------------------------------

    def struct(self, cls: type[Struct]) -> str:
        """Write the reading of a structure; the name that holds it."""
        self.flush()
        target = self.name("o")
        self.scope[cls.__name__] = cls
        self.line(f"{target} = new({cls.__name__})")
        tagged = []
        for field in fields_of(cls):
            place = f"{target}.{field.name}"
            if field.in_version(self.version) and field.tag is None:
                self.field(field, place)
                continue
            self.default(field, place)
            if field.tagged_in(self.version):
                tagged.append(field)
        if self.flexible:
            self.tags(tagged, target)
        return target

    def default(self, field: Field, place: str) -> None:
        """Write the assignment of a field's default."""
        value = field.make_default()
        if field.default_factory is not None and value != []:
            name = self.name("make")
            self.scope[name] = field.default_factory
            self.line(f"{place} = {name}()")
        else:
            self.line(f"{place} = {self.constant(value)}")

    def tags(self, tagged: list[Field], target: str) -> None:
        """Write the reading of tagged fields (KIP-482); unknown tags are skipped."""
        count = self.name("n")
        self.fixed("B", count)
        self.flush()
        if not tagged:
            self.line(f"if {count}:")
            self.depth += 1
            self.line(f"if {count} > 127: {count}, pos = more(buf, pos, {count})")
            self.take_room(count)
            self.line(f"pos = skip_tags(buf, pos, {count})")
            self.depth -= 1
            return
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"if {count} > 127: {count}, pos = more(buf, pos, {count})")
        self.take_room(count)
        tag, size, stop = self.name("t"), self.name("n"), self.name("p")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        for name in (tag, size):
            self.line(f"{name} = buf[pos]")
            self.line("pos += 1")
            self.line(f"if {name} > 127: {name}, pos = more(buf, pos, {name})")
        self.line(f"{stop} = pos + {size}")
        self.line(f"if {stop} > end: raise truncated({stop}, end)")
        for index, field in enumerate(tagged):
            self.line(f"{'el' if index else ''}if {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{target}.{field.name}")
            self.flush()
            self.depth -= 1
        self.line("else:")
        self.line(f"    pos = {stop}")
        self.line(f"if pos != {stop}: raise refuse_tag({tag}, {size})")
        self.depth -= 2

    def field(self, field: Field, place: str) -> None:
        """Write the reading of one field into `place`."""
        nullable = field.nullable_in(self.version)
        kind = field.type
        if isinstance(kind, type):
            if not nullable:
                self.line(f"{place} = {self.struct(kind)}")
                return
            presence = self.name("n")
            self.fixed("b", presence)
            self.flush()
            self.line(f"if {presence} <= {field.null_flag}:")
            self.line(f"    {place} = None")
            self.line("else:")
            self.depth += 1
            inner = self.struct(kind)
            self.flush()
            self.line(f"{place} = {inner}")
            self.depth -= 1
            return
        self.value(kind, place, self.flexible and field.compact, nullable, field.name)

    def value(self, kind: Type, place: str, compact: bool, nullable: bool, label: str) -> None:
        if isinstance(kind, Array):
            self.array(kind.element, place, compact, nullable, label)
        elif not isinstance(kind, Primitive):
            self.line(f"{place} = {self.struct(kind)}")
        elif kind is primitives.UUID:
            raw = self.name("raw")
            self.fixed("16s", raw)
            self.after.append(f"{place} = UUIDS[{raw}]")
        elif kind.code:
            self.fixed(kind.code, place)
        else:
            self.sized(kind, place, compact, nullable, label)

    def length(self, compact: bool, code: str, *, often_long: bool = False) -> tuple[str, str]:
        """Read a length: the name that holds it, and the condition under which it means null."""
        if compact:
            name = self.uvarint(often_long=often_long)
            return name, f"{name} == 0"
        name = self.name("n")
        self.fixed(code, name)
        self.flush()
        return name, f"{name} < 0"

    def null(self, place: str, condition: str, nullable: bool, label: str) -> None:
        """Write what happens under the condition that means null: None, or an error where null is not allowed."""
        self.line(f"if {condition}:")
        self.line(f"    {place} = None" if nullable else f"    raise refuse_null({label!r})")

    def sized(self, kind: Primitive, place: str, compact: bool, nullable: bool, label: str) -> None:
        """Write the reading of a string or of bytes, behind their length."""
        string = kind is primitives.STRING
        length, is_null = self.length(compact, "h" if string else "i", often_long=not string)
        if compact and string:
            self.lines[-1] += f"; refuse_long_string({length})"
        self.null(place, is_null, nullable, label)
        self.line("else:")
        stop = self.name("p")
        self.line(f"    {stop} = pos + {length}{' - 1' if compact else ''}")
        content = f"buf[pos:{stop}]"
        if string:
            content = f'str({content}, "utf-8")' if self.in_place else f"{content}.decode()"
        elif kind is primitives.BYTES and self.in_place:
            content = f"bytes({content})"
        self.line(f"    {place} = {content}")
        self.line(f"    pos = {stop}")

    def array(self, element: Type, place: str, compact: bool, nullable: bool, label: str) -> None:
        """Write the reading of an array, behind the number of its elements."""
        count, is_null = self.length(compact, "i")
        self.null(place, is_null, nullable, label)
        self.line("else:")
        self.depth += 1
        if compact:
            self.line(f"{count} -= 1")
        if isinstance(element, Primitive) and element.size and element is not primitives.UUID:
            stop = self.name("p")
            self.line(f"{stop} = pos + {count} * {element.size}")
            self.line(f"if {stop} > end: raise refuse_count({count}, end - pos)")
            self.take_room(f"{count} >> {BYTES_PER_ELEMENT_SHIFT}" if element.size == 1 else count)
            self.line(f'{place} = list(unpack_from(f">{{{count}}}{element.code}", buf, pos))')
            self.line(f"pos = {stop}")
        else:
            self.line(f"if {count} > end - pos: raise refuse_count({count}, end - pos)")
            self.take_room(count)
            items = self.name("a")
            self.line(f"{items} = []")
            at = self.name("i") if self.in_steps else "_"
            self.line(f"for {at} in range({count}):")
            self.depth += 1
            if self.in_steps:
                self.line(f"if {at} & {STEP_MASK} == {STEP_MASK}: yield")
            if isinstance(element, type):
                item = self.struct(element)
                self.flush()
            else:
                item = self.name("v")
                self.value(element, item, compact, False, f"an element of {label}")
                self.flush()
            self.line(f"{items}.append({item})")
            self.depth -= 1
            self.line(f"{place} = {items}")
        self.depth -= 1
