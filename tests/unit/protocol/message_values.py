"""Hypothesis strategies for messages, drawn from their declarations, and every (message, version) there is."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

import ottla.protocol.messages
from ottla.protocol import primitives
from ottla.protocol.schema import Array, Field, Message, Struct, Type, fields_of

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def all_messages() -> list[type[Message]]:
    """Every message class declared in `ottla.protocol.messages`, by name."""
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(ottla.protocol.messages.__path__):
        for value in vars(import_module(f"ottla.protocol.messages.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                assert value.__name__ not in found or found[value.__name__] is value
                found[value.__name__] = value
    return [found[name] for name in sorted(found)]


_strategies: dict[Any, st.SearchStrategy[Any]] = {}


def values_of(kind: Type) -> st.SearchStrategy[Any]:
    """Any value of a type, in whichever version."""
    known = _strategies.get(kind)
    if known is None:
        known = _strategies[kind] = _values_of(kind)
    return known


def _values_of(kind: Type) -> st.SearchStrategy[Any]:
    if isinstance(kind, Array):
        return st.lists(values_of(kind.element), max_size=3)
    if isinstance(kind, type):
        return st.builds(kind, **{field.name: field_values(field) for field in fields_of(kind)})
    if kind.name in INTEGERS:
        low, high = INTEGERS[kind.name]
        return st.integers(low, high)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False, allow_infinity=False),
        "uuid": st.uuids() | st.just(primitives.NULL_UUID),
        # Lengths on both sides of 127 and 128 make both the one-byte and the two-byte lengths.
        "string": st.text(max_size=8) | st.sampled_from(["x" * 126, "x" * 127, "ü" * 64, "y" * 20_000]),
        "bytes": st.binary(max_size=8) | st.just(bytes(300)),
        "records": st.binary(max_size=8) | st.just(bytes(300)),
    }[kind.name]


def field_values(field: Field) -> st.SearchStrategy[Any]:
    values = values_of(field.type)
    if field.nullable_since < 1000 or field.optional:
        values = st.none() | values
    if field.default_factory is None and field.has_default:
        values = st.just(field.make_default()) | values
    return values


def narrowed(value: Any, version: int) -> Any:
    """`value` with everything at its default that `version` cannot carry."""
    if isinstance(value, list):
        return [narrowed(element, version) for element in value]
    if not isinstance(value, Struct):
        return value
    fields = {}
    for field in fields_of(type(value)):
        content = getattr(value, field.name)
        if not field.in_version(version):
            content = field.make_default()
        elif content is None and not field.nullable_in(version) and not field.optional:
            content = empty(field.type)
        fields[field.name] = narrowed(content, version)
    return type(value)(**fields)


def empty(kind: Type) -> Any:
    """The smallest value of a type."""
    if isinstance(kind, Array):
        return []
    if isinstance(kind, type):
        return kind(**{field.name: empty(field.type) for field in fields_of(kind)})
    if kind.name in INTEGERS:
        return 0
    return {"bool": False, "float64": 0.0, "uuid": primitives.NULL_UUID, "string": ""}.get(kind.name, b"")
