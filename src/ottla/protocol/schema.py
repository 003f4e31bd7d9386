"""How a message is declared: the class is the schema, for all of its versions.

    @message(ApiKey.HEARTBEAT, versions=(0, 4), flexible=4)
    class HeartbeatRequest(Message):
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: str | None = since(3, default=None)

Fields are written in wire order. A field without `since` is in every version; one that some version lacks has a
default, which is what decoding such a version yields. `X | None` may be null in every version that has the field,
unless `nullable_since` names a later one.

Declaring is cheap, because it happens at import: a class gets its slots and nothing else. Annotations are
resolved (`fields_of`) when the first codec is built for the class, and its constructor is generated on first use.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, dataclass_transform
from typing import get_args as type_args
from typing import get_origin as type_origin

from ottla.protocol import primitives
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.primitives import Primitive

if TYPE_CHECKING:
    from ottla.protocol.api import ApiKey

MISSING: Final[Any] = object()


class Since:
    """The arguments of `since`, until `fields_of` joins them with the annotation."""

    __slots__ = (
        "compact",
        "default",
        "default_factory",
        "first",
        "ignorable",
        "nullable_since",
        "optional",
        "tag",
        "until",
    )

    def __init__(
        self,
        first: int,
        until: int | None,
        default: Any,
        default_factory: Callable[[], Any] | None,
        nullable_since: int | None,
        tag: int | None,
        ignorable: bool,
        optional: bool,
        compact: bool,
    ) -> None:
        self.first = first
        self.until = until
        self.default = default
        self.default_factory = default_factory
        self.nullable_since = nullable_since
        self.tag = tag
        self.ignorable = ignorable
        self.optional = optional
        self.compact = compact


def since(
    first: int = 0,
    *,
    until: int | None = None,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    optional: bool = False,
    compact: bool = True,
) -> Any:
    """Describe a field that is not simply there in every version.

    first, until: the versions that carry the field, both included; open-ended without `until`.
    default: its value where it is absent. `default_factory` (called per instance) for lists.
    nullable_since: the first version in which null may be sent, when later than `first`.
    tag: the field is a tagged field (KIP-482), left out when it has its default.
    ignorable: a version that lacks the field drops a value silently, instead of refusing to encode it.
    optional: a tagged structure that the protocol cannot send as null; `None` here means that the tag is left out.
    compact: `False` keeps the pre-KIP-482 length even in flexible versions (the client id of request headers).
    """
    return Since(first, until, default, default_factory, nullable_since, tag, ignorable, optional, compact)


class Struct:
    """Base of all declared classes. Instances compare by value and are mutable; constructors take keywords only."""

    __slots__ = ()
    DECLARED: ClassVar[dict[str, Any]]
    """Field name to `Since` or plain default, for the fields that were assigned something."""

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            # Runs once per class: replaced by a generated constructor with the same meaning.
            from ottla.protocol.compiled import constructor

            cls = type(self)
            cls.__init__ = constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in field_names(type(self)))

    __hash__ = None  # type: ignore[assignment]  # mutable: the declared way to say "not hashable"

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={_abridged(getattr(self, name))}" for name in field_names(type(self)))
        return f"{type(self).__name__}({inner})"


class Message(Struct):
    """A structure that starts on its own: a request, a response, a header or a record."""

    __slots__ = ()
    API_KEY: ClassVar[ApiKey | None]
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int]
    """First version with compact lengths and tagged fields (KIP-482); `NEVER` if there is none."""


NEVER: Final = 0x7FFF

S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def struct(cls: type[S]) -> type[S]:
    """Declare a structure that messages contain; its versions are those of the message around it."""
    return _with_slots(cls, {})


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def message(
    api_key: ApiKey | None = None, *, versions: tuple[int, int], flexible: int | None = None
) -> Callable[[type[M]], type[M]]:
    """Declare a message. `versions` are the first and the last, `flexible` the first flexible one if any.

    Without `api_key` it is neither request nor response: a header, a coordinator record, a control record.
    """
    facts = {
        "API_KEY": api_key,
        "VERSIONS": range(versions[0], versions[1] + 1),
        "FLEXIBLE_SINCE": NEVER if flexible is None else flexible,
    }

    def declare(cls: type[M]) -> type[M]:
        return _with_slots(cls, facts)

    return declare


def _with_slots(cls: type[S], facts: dict[str, Any]) -> type[S]:
    namespace = dict(cls.__dict__)
    names = tuple(name for name, hint in namespace.get("__annotations__", {}).items() if "ClassVar" not in hint)
    namespace["DECLARED"] = {name: namespace.pop(name) for name in names if name in namespace}
    namespace["__slots__"] = names
    namespace.update(facts)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    declared: type[S] = type(cls.__name__, cls.__bases__, namespace)
    return declared


def field_names(cls: type[Struct]) -> tuple[str, ...]:
    """Names of the fields in wire order."""
    names: tuple[str, ...] = cls.__dict__["__slots__"]
    return names


def _abridged(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > 64:
        return f"<{len(value)} bytes>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)


class Array:
    """The type of a `list[...]` field."""

    __slots__ = ("element",)

    def __init__(self, element: Type) -> None:
        self.element = element

    def __repr__(self) -> str:
        return f"[]{self.element!r}"


Type = Primitive | Array | type[Struct]


class Field:
    """One resolved field. `until` is inclusive and `NEVER` when open; `nullable_since` is `NEVER` if it never is."""

    __slots__ = (
        "compact",
        "default",
        "default_factory",
        "first",
        "ignorable",
        "name",
        "nullable_since",
        "optional",
        "tag",
        "type",
        "until",
    )

    def __init__(self, name: str, kind: Type, nullable: bool, declared: Any) -> None:
        facts: Since = declared if isinstance(declared, Since) else since(default=declared)
        self.name = name
        self.type = kind
        self.first = facts.first
        self.until = NEVER if facts.until is None else facts.until
        self.default = facts.default
        self.default_factory = facts.default_factory
        self.tag = facts.tag
        self.ignorable = facts.ignorable
        self.optional = facts.optional
        self.compact = facts.compact
        if not nullable or facts.optional:
            self.nullable_since = NEVER
        else:
            self.nullable_since = facts.first if facts.nullable_since is None else facts.nullable_since

    def __repr__(self) -> str:
        return f"<{self.name}: {self.type!r} {self.first}-{self.until}>"

    @property
    def is_error_text(self) -> bool:
        """Whether it is a text about an error, for people. It may repeat what a client has sent, as much as that was,
        so encoders cut it."""
        return self.name.endswith(("error_message", "status_detail"))

    @property
    def null_flag(self) -> int:
        """The byte that stands for a structure that is null; 1 precedes one that is not, and what is greater is taken
        for 1. In Kafka the flag is an int8, but an unsigned varint in tagged fields."""
        return -1 if self.tag is None else 0

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING or self.default_factory is not None

    def make_default(self) -> Any:
        """The value where an instance is made without the field, or decoded from a version that lacks it."""
        if self.default_factory is not None:
            return self.default_factory()
        if self.default is MISSING:
            raise TypeError(f"field {self.name} has no default")
        return self.default

    def is_default(self, value: Any) -> bool:
        return bool(value == self.make_default())

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.until

    def in_all(self, versions: range) -> bool:
        return self.first <= versions[0] and versions[-1] <= self.until

    def tagged_in(self, version: int) -> bool:
        return self.tag is not None and self.in_version(version)

    def nullable_in(self, version: int) -> bool:
        return version >= self.nullable_since


_fields: dict[type[Struct], tuple[Field, ...]] = {}


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of a declared class in wire order, resolved on first use.

    Raises TypeError for a declaration that makes no sense.
    """
    known = _fields.get(cls)
    if known is None:
        known = _fields[cls] = tuple(_resolve(cls))
    return known


def _resolve(cls: type[Struct]) -> Iterable[Field]:
    if "DECLARED" not in cls.__dict__:
        raise TypeError(f"{cls.__name__} is not declared: put @struct or @message(...) on it")
    scope = {**vars(sys.modules[cls.__module__])}
    for name in field_names(cls):
        hint = cls.__annotations__[name]
        if isinstance(hint, str):
            hint = eval(hint, scope)  # our own source text, as typing.get_type_hints would do, tenfold faster
        kind, nullable = _type_of(hint, f"{cls.__name__}.{name}")
        field = Field(name, kind, nullable, cls.DECLARED.get(name, MISSING))
        if issubclass(cls, Message) and not (field.has_default or field.in_all(cls.VERSIONS)):
            raise TypeError(f"{cls.__name__}.{name} is not in every version and needs a default")
        yield field


_PLAIN: Final[dict[Any, Primitive]] = {
    bool: primitives.BOOL,
    str: primitives.STRING,
    bytes: primitives.BYTES,
    uuid.UUID: primitives.UUID,
}


def _type_of(hint: Any, where: str) -> tuple[Type, bool]:
    plain = _PLAIN.get(hint)
    if plain is not None:
        return plain, False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint, False
    origin = type_origin(hint)
    if origin is Annotated:
        for note in type_args(hint)[1:]:
            if isinstance(note, Primitive):
                return note, False
    if origin is list:
        element, nullable = _type_of(type_args(hint)[0], where)
        if nullable:
            raise TypeError(f"{where}: elements of arrays cannot be null")
        return Array(element), False
    options = type_args(hint)
    if len(options) == 2 and type(None) in options:
        kind, _ = _type_of(options[options[0] is type(None)], where)
        return kind, True
    raise TypeError(f"{where}: the protocol has no type for {hint!r}")


def check_version(cls: type[Message], version: int) -> None:
    """Raise `UnsupportedVersion` unless `cls` is declared for `version`."""
    if version not in cls.VERSIONS:
        raise UnsupportedVersion(f"{cls.__name__} has versions {cls.VERSIONS[0]} to {cls.VERSIONS[-1]}, not {version}")
