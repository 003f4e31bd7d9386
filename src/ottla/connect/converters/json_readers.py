"""PURE: values by their schemas straight out of JSON's bytes, in one pass.

There are two kinds of readers. Both refuse a little that the decoders take, and nothing the other way round; what they
take is what the decoders make of it. `reader` is the parser that pydantic brings, twice as fast as a parser with the
decoders after it; it refuses numbers that are written as texts, for one. `struct_reader` is in C (`_json.c`, where that
has been compiled), and twice as fast again: it takes only structs that are written as Kafka's JsonConverter does.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic_core import CoreSchema, SchemaValidator, core_schema, from_json

from ottla.connect.converters.by_schema import range_of
from ottla.connect.converters.json_decoders import JsonDecoders
from ottla.connect.converters.logical import FROM_PLAIN, scale_of
from ottla.connect.errors import BadRecord
from ottla.connect.schema import DECIMAL, TIMESTAMP, Schema, Type

ReadBytes = Callable[[bytes], Any]

_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)


class StructReader(Protocol):
    """Reads structs of one schema."""

    def read(self, payload: bytes, head: bytes, /) -> dict[str, Any] | None:
        """The struct of a payload that is this head, the struct and a brace. None: refused, for an unknown reason."""


if TYPE_CHECKING:
    from ottla.connect.converters import _json
else:
    try:
        from ottla.connect.converters import _json
    except ImportError:
        _json = None

_INTERFACE: Final = 1
IS_NATIVE: Final[bool] = getattr(_json, "INTERFACE", None) == _INTERFACE
_SKIPPED, _INTEGER, _FLOAT, _BOOLEAN, _STRING, _STRUCT, _PLAIN, _BYTES, _DECIMAL, _TIMESTAMP = range(10)
_SIMPLE: Final = {Type.STRING: _STRING, Type.BOOLEAN: _BOOLEAN, Type.FLOAT32: _FLOAT, Type.FLOAT64: _FLOAT}
_MOST_NESTED: Final = 32
"""Structs within structs; the C code refuses values of twice as many."""
_MOST_DIGITS: Final = 1000
"""After the point, of decimals that the C code makes."""


def reader(schema: Schema | None, decoders: JsonDecoders) -> ReadBytes:
    """What reads values of a schema, or JSON as it is. It raises ValueError or BadRecord for what it refuses."""
    if schema is None:
        return from_json
    return SchemaValidator(_of(schema, decoders), core_schema.CoreConfig(cache_strings="keys")).validate_json


def struct_reader(schema: Schema | None, decoders: JsonDecoders, unread: Collection[str] = ()) -> StructReader | None:
    """What reads structs of this schema, without the fields that are not read; None: nothing that is fast."""
    if not IS_NATIVE or schema is None or schema.type is not Type.STRUCT or schema.name in FROM_PLAIN:
        return None
    return _native_struct(schema, decoders, unread, _MOST_NESTED)


def _native_struct(
    schema: Schema, decoders: JsonDecoders, unread: Collection[str], most_nested: int
) -> "_json.StructReader | None":
    fields = []
    for each in schema.fields:
        made = (_SKIPPED, 0, 0, None) if each.name in unread else _native(each.schema, decoders, most_nested)
        if made is None:
            return None
        allowed, null = decoders.of_null(each.schema)
        label = json.dumps(each.name, ensure_ascii=False) + ":"
        fields.append((each.name, label.encode("utf-8", "surrogatepass"), *made, (null,) if allowed else ()))
    if len({each.name for each in schema.fields}) < len(fields):
        return None
    return _json.StructReader(tuple(fields))


def _native(schema: Schema, decoders: JsonDecoders, most_nested: int) -> tuple[int, int, int, object] | None:
    """How a field is read that is not null: the kind, the lowest and the highest number, and what makes its values."""
    if schema.name in FROM_PLAIN or schema.type is Type.BYTES:
        return *_logical(schema), 0, decoders.of(_without_null(schema))
    if schema.type is Type.STRUCT:
        inner = _native_struct(schema, decoders, (), most_nested - 1) if most_nested else None
        return None if inner is None else (_STRUCT, 0, 0, inner)
    if schema.type in (Type.ARRAY, Type.MAP):
        return _BYTES, 0, 0, reader(_without_null(schema), decoders)
    simple = _SIMPLE.get(schema.type)
    return (_INTEGER, *range_of(schema), None) if simple is None else (simple, 0, 0, None)


def _logical(schema: Schema) -> tuple[int, int]:
    """The kind of what a decoder makes values of, and the digits after the point."""
    if schema.name == TIMESTAMP and schema.type is Type.INT64:
        return _TIMESTAMP, 0
    if schema.name == DECIMAL:
        try:
            scale = scale_of(schema)
        except BadRecord:  # the decoder reports it, for each value
            return _PLAIN, 0
        return (_DECIMAL, scale) if abs(scale) <= _MOST_DIGITS else (_PLAIN, 0)
    return _PLAIN, 0


def _of(schema: Schema, decoders: JsonDecoders) -> CoreSchema:
    if _becomes_default(schema, decoders):
        return core_schema.no_info_plain_validator_function(decoders.of(schema))
    made = _not_null(schema, decoders)
    return core_schema.nullable_schema(made) if schema.optional else made


def _becomes_default(schema: Schema, decoders: JsonDecoders) -> bool:
    return decoders.of_null(schema)[1] is not None


def _not_null(schema: Schema, decoders: JsonDecoders) -> CoreSchema:
    if schema.name in FROM_PLAIN or schema.type is Type.BYTES:
        return _by_decoder(schema, decoders)
    if schema.type is Type.STRUCT:
        return _struct(schema, decoders)
    if schema.type is Type.ARRAY:
        return core_schema.list_schema(_of(schema.element, decoders), strict=True)
    if schema.type is Type.MAP:
        keys, items = schema.entry
        if keys.type is not Type.STRING:  # an array of pairs
            return _by_decoder(schema, decoders)
        return core_schema.dict_schema(core_schema.str_schema(), _of(items, decoders), strict=True)
    if schema.type is Type.STRING:
        return core_schema.str_schema(strict=True)
    if schema.type is Type.BOOLEAN:
        return core_schema.bool_schema(strict=True)
    if schema.type in _FLOATS:
        return core_schema.float_schema(strict=True)
    low, high = range_of(schema)
    return core_schema.int_schema(ge=low, le=high, strict=True)


def _struct(schema: Schema, decoders: JsonDecoders) -> CoreSchema:
    fields = {}
    for each in schema.fields:
        made = _of(each.schema, decoders)
        allowed, null = decoders.of_null(each.schema)
        if allowed:  # and then it may lack
            made = core_schema.with_default_schema(made, default_factory=lambda null=null: null)
        fields[each.name] = core_schema.typed_dict_field(made, required=not allowed)
    return core_schema.typed_dict_schema(fields, extra_behavior="ignore", strict=True)


def _by_decoder(schema: Schema, decoders: JsonDecoders) -> CoreSchema:
    return core_schema.no_info_plain_validator_function(decoders.of(_without_null(schema)))


def _without_null(schema: Schema) -> Schema:
    return replace(schema, optional=False, has_default=False, default=None)
