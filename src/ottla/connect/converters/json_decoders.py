"""PURE: values by their schemas out of what a JSON parser made of Kafka's JsonConverter's bytes.

Each schema gets a function of its own, put together once: these are the innermost loops of every sink.
"""

import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from ottla.connect.converters.json_encoders import BITS, refused
from ottla.connect.converters.logical import FROM_PLAIN
from ottla.connect.errors import BadRecord
from ottla.connect.schema import DECIMAL, Schema, Type

Decode = Callable[[Any], Any]

_AS_IT_IS: Final[Mapping[Type, type]] = {
    Type.STRING: str,
    Type.BOOLEAN: bool,
    Type.FLOAT32: float,
    Type.FLOAT64: float,
}
"""Types whose values may be what the parser made."""


class JsonDecoders:
    """Puts decoders together. fill: whether a null becomes its schema's default (`replace.null.with.default`)."""

    def __init__(self, *, fill: bool) -> None:
        self._fill = fill

    def of(self, schema: Schema | None) -> Decode:
        """Values of a schema, None too; without one, as they are. The decoder raises BadRecord for what does not fit.

        Numbers with a point come as Decimals, or as floats where the schema has no decimals.
        """
        if schema is None:
            return without_decimals
        read, allowed, null = self._not_null(schema), *self._null(schema)
        if not allowed:
            return read  # and refuses None as it refuses everything that does not fit
        return lambda value: null if value is None else read(value)

    def _null(self, schema: Schema) -> tuple[bool, Any]:
        """Whether a None is allowed, and what it becomes."""
        if schema.has_default and schema.default is not None and self._fill:
            return True, schema.default
        return schema.optional, None

    def _not_null(self, schema: Schema) -> Decode:
        if schema.name in FROM_PLAIN:
            return _logical(schema)
        if schema.type is Type.STRUCT:
            return self._struct(schema)
        if schema.type is Type.ARRAY:
            return self._array(schema)
        if schema.type is Type.MAP:
            return self._map(schema)
        if schema.type is Type.BYTES:
            return _bytes(schema)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return _number(schema)
        if schema.type in (Type.STRING, Type.BOOLEAN):
            return _as_it_is(schema)
        return _integer(schema)

    def _struct(self, schema: Schema) -> Decode:
        fields = [
            (
                each.name,
                _AS_IT_IS.get(each.schema.type) if each.schema.name not in FROM_PLAIN else None,
                self._not_null(each.schema),
                *self._null(each.schema),
            )
            for each in schema.fields
        ]

        def decode(value: Any) -> dict[str, Any]:
            if value.__class__ is not dict:
                raise refused(schema, value)
            get = value.get
            return {
                name: item
                if (item := get(name)).__class__ is kind
                else null
                if item is None and allowed
                else read(item)
                for name, kind, read, allowed, null in fields
            }

        return decode

    def _array(self, schema: Schema) -> Decode:
        read = self.of(schema.items)

        def decode(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise refused(schema, value)
            return [read(item) for item in value]

        return decode

    def _map(self, schema: Schema) -> Decode:
        assert schema.keys is not None
        read_key, read = self.of(schema.keys), self.of(schema.items)
        named = schema.keys.type is Type.STRING

        def decode(value: Any) -> dict[Any, Any]:
            if named and isinstance(value, dict):
                return {key: read(item) for key, item in value.items()}
            if not named and isinstance(value, list):
                return {read_key(key): read(item) for key, item in value}
            raise refused(schema, value)

        return decode


def without_decimals(value: Any) -> Any:
    """What a parser made that reads numbers with a point as Decimals, with floats in their place."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [without_decimals(item) for item in value]
    if isinstance(value, dict):
        return {key: without_decimals(item) for key, item in value.items()}
    return value


def _logical(schema: Schema) -> Decode:
    assert schema.name is not None
    convert = FROM_PLAIN[schema.name]
    if schema.name != DECIMAL:
        whole = _integer(schema)
        return lambda value: convert(schema, whole(value))
    digits = _bytes(schema)
    return lambda value: Decimal(value) if _is_number(value) else convert(schema, digits(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _as_it_is(schema: Schema) -> Decode:
    kind = _AS_IT_IS[schema.type]

    def decode(value: Any) -> Any:
        if value.__class__ is kind:
            return value
        raise refused(schema, value)

    return decode


def _integer(schema: Schema) -> Decode:
    low, high = -(1 << BITS[schema.type]), (1 << BITS[schema.type]) - 1

    def decode(value: Any) -> int:
        if value.__class__ is int and low <= value <= high:
            return value
        if value.__class__ in (Decimal, float) and low <= value <= high:
            return int(value)
        raise refused(schema, value)

    return decode


def _number(schema: Schema) -> Decode:
    def decode(value: Any) -> float:
        if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool):
            return float(value)
        raise refused(schema, value)

    return decode


def _bytes(schema: Schema) -> Decode:
    def decode(value: Any) -> bytes:
        if not isinstance(value, str):
            raise refused(schema, value)
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except ValueError:
            raise BadRecord("bytes in JSON are in Base64, and these are not") from None

    return decode
