"""Writes the source of a flat encode function; `ottla.protocol.compiled` runs it.

What comes out for the request of Heartbeat, version 4 (shortened):

    def encode_HeartbeatRequest_4(o0, out, pieces):
        raw1 = o0.group_id.encode()
        n2 = len(raw1) + 1
        if n2 < 128: out.append(n2)
        else: out += long_length(n2)
        out += raw1
        ...
        out += p_x()
        return out
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.protocol import primitives
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.limits import STEP_MASK
from ottla.protocol.primitives import MAX_STRING, Encoded, Primitive, shortened, uvarint
from ottla.protocol.schema import Array, Field, Message, Struct, Type, fields_of


def _unsupported(name: str, version: int) -> UnencodableMessage:
    return UnencodableMessage(f"{name} is set, which version {version} cannot carry")


def _refuse_null(name: str, version: int) -> UnencodableMessage:
    return UnencodableMessage(f"{name} cannot be null in version {version}")


def _long_string(length_code: int) -> bytes:
    if length_code > MAX_STRING + 1:
        raise UnencodableMessage(f"a string of {length_code - 1} bytes is too long")
    return uvarint(length_code)


class EncoderSource:
    """`text()` is the function; `scope` its globals."""

    def __init__(
        self, cls: type[Message], version: int, part: type[Struct] | None = None, *, in_steps: bool = False
    ) -> None:
        """Encodes `cls`; with `part`, one structure of that class as it stands in a list of `cls`. `in_steps`: a
        generator with the same result, which yields after every few elements."""
        self.in_steps = in_steps
        self.cls = cls
        self.root: type[Struct] = part or cls
        self.version = version
        self.flexible = version >= cls.FLEXIBLE_SINCE
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.out = "out"
        self.pending: list[tuple[str, str]] = []  # (struct format, expression) of the current fixed-width run
        self.scope: dict[str, Any] = {
            "uvarint": uvarint,
            "long_string": _long_string,
            "shortened": shortened,
            "unsupported": _unsupported,
            "refuse_null": _refuse_null,
            "pack": struct.pack,
            "encoded": Encoded,
        }

    def text(self) -> str:
        """The source of the function."""
        head = f"def encode_{self.root.__name__}_{self.version}(o0, out, pieces):"
        self.struct(self.root, "o0")
        self.flush()
        self.line("return out")
        if self.in_steps:
            self.line("yield")  # a generator even without arrays
        return "\n".join([head, *self.lines])

    # -- writing ---------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        """A local name that is not in use yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def fixed(self, code: str, expression: str) -> None:
        self.pending.append((code, expression))

    def packed(self, run: list[tuple[str, str]]) -> str:
        """The expression that packs a run."""
        codes = "".join(code for code, _ in run)
        if codes == "x" * len(codes):
            return repr(bytes(len(codes)))
        function = f"p_{codes.replace('?', '_')}"
        self.scope[function] = struct.Struct(">" + codes).pack
        return f"{function}({', '.join(expression for code, expression in run if code != 'x')})"

    def flush(self) -> None:
        """Write the appending of the pending run."""
        run, self.pending = self.pending, []
        if not run:
            return
        if len(run) == 1 and run[0][0] in "xB":
            self.line(f"{self.out}.append({run[0][1] or 0})")
        else:
            self.line(f"{self.out} += {self.packed(run)}")

    def uvarint(self, value: str, long: str = "uvarint") -> None:
        """Write the appending of an unsigned varint (a name), fused into the pending run when it has one byte."""
        run, self.pending = self.pending, []
        if not run:
            self.line(f"if {value} < 128: {self.out}.append({value})")
            self.line(f"else: {self.out} += {long}({value})")
        else:
            self.line(f"if {value} < 128: {self.out} += {self.packed([*run, ('B', value)])}")
            self.line(f"else: {self.out} += {self.packed(run)} + {long}({value})")

    def long_uvarint(self, value: str) -> None:
        """Like `uvarint`, without a call for up to three bytes: for lengths that are often long."""
        run, self.pending = self.pending, []
        low, middle = f"{value} & 127 | 128", f"{value} >> 7 & 127 | 128"
        self.line(f"if {value} < 128: {self.out} += {self.packed([*run, ('B', value)])}")
        two = [*run, ("B", low), ("B", f"{value} >> 7")]
        self.line(f"elif {value} < {1 << 14}: {self.out} += {self.packed(two)}")
        three = [*run, ("B", low), ("B", middle), ("B", f"{value} >> 14")]
        self.line(f"elif {value} < {1 << 21}: {self.out} += {self.packed(three)}")
        self.line(f"else: {self.out} += {self.packed(run) + ' + ' if run else ''}uvarint({value})")

    def is_set(self, field: Field, place: str) -> str:
        """The condition under which a field does not have its default."""
        value = field.make_default()
        if value is None:
            return f"{place} is not None"
        if value is False:
            return place
        if type(value) is int or type(value) is str or value is True:
            return f"{place} != {value!r}"
        name = self.name("default")
        self.scope[name] = value
        if isinstance(value, list):
            return f"{place} != {name}"
        return f"({place} is not {name} and {place} != {name})"

    # -- walking ---------------------------------------------------------------------------------------------------

    def struct(self, cls: type[Struct], source: str) -> None:
        """Write the appending of a structure; a field that is set and not in this version raises, unless ignorable."""
        tagged = []
        for field in fields_of(cls):
            place = f"{source}.{field.name}"
            if not field.in_version(self.version):
                if not field.ignorable:
                    self.line(f"if {self.is_set(field, place)}:")
                    self.line(f"    raise unsupported({cls.__name__ + '.' + field.name!r}, {self.version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.field(field, place)
        if self.flexible:
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), source)

    def tags(self, tagged: list[Field], source: str) -> None:
        """Write the appending of tagged fields (KIP-482) that do not have their default."""
        if not tagged:
            self.fixed("x", "")
            return
        places = [f"{source}.{field.name}" for field in tagged]
        conditions = [self.is_set(field, place) for field, place in zip(tagged, places, strict=True)]
        self.line(f"if {' or '.join(conditions)}:")
        self.depth += 1
        run = list(self.pending)
        self.flush()
        self.line(f"{self.out}.append({' + '.join(f'(1 if {condition} else 0)' for condition in conditions)})")
        for field, place, condition in zip(tagged, places, conditions, strict=True):
            self.line(f"if {condition}:")
            self.depth += 1
            outer, self.out = self.out, self.name("tag")
            self.line(f"{self.out} = bytearray()")
            self.field(field, place)
            self.flush()
            self.line(f"{outer} += uvarint({field.tag}) + uvarint(len({self.out})) + {self.out}")
            self.out = outer
            self.depth -= 1
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.pending = [*run, ("x", "")]
        self.flush()
        self.depth -= 1

    def field(self, field: Field, place: str) -> None:
        """Write the appending of one field, taken from `place`."""
        nullable = field.nullable_in(self.version)
        kind = field.type
        compact = self.flexible and field.compact
        if not isinstance(kind, type):
            if field.is_error_text:
                self.sized(primitives.STRING, place, compact, nullable, encoded=f"shortened({place}.encode())")
            else:
                self.value(kind, place, compact, nullable, field.name)
            return
        item = self.name("o")
        self.line(f"{item} = {place}")
        if not nullable:
            self.struct(kind, item)
            return
        self.flush()
        self.line(f"if {item} is None: {self.out}.append({field.null_flag & 255})")
        self.line("else:")
        self.depth += 1
        self.line(f"{self.out}.append(1)")
        self.struct(kind, item)
        self.flush()
        self.depth -= 1

    def value(self, kind: Type, place: str, compact: bool, nullable: bool, label: str) -> None:
        if isinstance(kind, Array):
            self.array(kind.element, place, compact, nullable)
        elif not isinstance(kind, Primitive):
            self.struct(kind, place)
        elif kind is primitives.UUID:
            self.fixed("16s", f'{place}.int.to_bytes(16, "big")')
        elif kind.code:
            self.fixed(kind.code, place)
        elif kind is primitives.RECORDS:
            self.records(place, compact, nullable, label)
        else:
            encoded = f"{place}.encode()" if kind is primitives.STRING else place
            self.sized(kind, place, compact, nullable, encoded)

    def sized(self, kind: Primitive, place: str, compact: bool, nullable: bool, encoded: str) -> None:
        """Write the appending of a string or of bytes, behind their length; `encoded` is the expression for its
        bytes."""
        string = kind is primitives.STRING
        raw, length = self.name("raw"), self.name("n")
        extra = " + 1" if compact else ""
        if nullable:
            self.line(f"if {place} is None:")
            self.line(f'    {raw} = b""; {length} = {0 if compact else -1}')
            self.line("else:")
            self.line(f"    {raw} = {encoded}; {length} = len({raw}){extra}")
        else:
            self.line(f"{raw} = {encoded}")
            self.line(f"{length} = len({raw}){extra}")
        if compact:
            self.uvarint(length, "long_string" if string else "uvarint")
        else:
            self.fixed("h" if string else "i", length)
            self.flush()
        self.line(f"{self.out} += {raw}")

    def array(self, element: Type, place: str, compact: bool, nullable: bool) -> None:
        """Write the appending of an array, behind the number of its elements."""
        items, count = self.name("a"), self.name("n")
        self.line(f"{items} = {place}")
        extra = " + 1" if compact else ""
        if nullable:
            self.line(f"if {items} is None: {items} = (); {count} = {0 if compact else -1}")
            self.line(f"else: {count} = len({items}){extra}")
        else:
            self.line(f"{count} = len({items}){extra}")
        if compact:
            self.uvarint(count)
        else:
            self.fixed("i", count)
            self.flush()
        if isinstance(element, Primitive) and element.size and element is not primitives.UUID:
            self.line(f'if {items}: {self.out} += pack(f">{{len({items})}}{element.code}", *{items})')
            return
        item = self.name("o")
        if self.in_steps:
            at = self.name("i")
            self.line(f"for {at}, {item} in enumerate({items}):")
            self.line(f"    if {at} & {STEP_MASK} == {STEP_MASK}: yield")
        else:
            self.line(f"for {item} in {items}:")
        self.depth += 1
        if isinstance(element, type):
            self.line(f"if {item}.__class__ is encoded: {self.out} += {item}; continue")
        self.value(element, item, compact, False, "")
        self.flush()
        self.depth -= 1

    def records(self, place: str, compact: bool, nullable: bool, label: str) -> None:
        """Write the appending of record batches, which are sent as they are, without a copy."""
        if self.out != "out":
            raise TypeError(f"{self.cls.__name__}: records cannot be in a tagged field")
        value, kind, length = self.name("r"), self.name("c"), self.name("n")
        extra = " + 1" if compact else ""
        self.line(f"{value} = {place}")
        self.line(f"{kind} = {value}.__class__")
        self.line(f"if {value} is None:")
        if nullable:
            self.line(f"    {length} = {0 if compact else -1}")
        else:
            self.line(f"    raise refuse_null({label!r}, {self.version})")
        self.line(f"elif {kind} is list or {kind} is tuple: {length} = sum(map(len, {value})){extra}")
        self.line(f"else: {length} = len({value}){extra}")
        if compact:
            self.long_uvarint(length)
        else:
            self.fixed("i", length)
            self.flush()
        self.line(f"if {value} is not None:")
        self.line("    pieces.append(out)")
        self.line(f"    if {kind} is list or {kind} is tuple: pieces += {value}")
        self.line(f"    else: pieces.append({value})")
        self.line("    out = bytearray()")
