"""PURE: values by their schemas out of what a JSON parser made of Kafka's JsonConverter's bytes.

These are the innermost loops of every sink.
"""

import binascii
import contextlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from ottla.connect.converters.by_schema import BySchema, range_of, refused
from ottla.connect.converters.logical import FROM_PLAIN, decimals_of
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


class JsonDecoders(BySchema[Any]):
    """Puts decoders together.

    Numbers with a point come to them as Decimals, or as floats where the schema has no decimals.
    """

    def _logical(self, schema: Schema) -> Decode:
        return _logical(schema)

    def _struct(self, schema: Schema) -> Decode:
        fields = [
            (
                each.name,
                _AS_IT_IS.get(each.schema.type) if each.schema.name not in FROM_PLAIN else None,
                self._not_null(each.schema),
                *self.of_null(each.schema),
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
        read = self.of(schema.element)

        def decode(value: Any) -> list[Any]:
            if not isinstance(value, list):
                raise refused(schema, value)
            return [read(item) for item in value]

        return decode

    def _map(self, schema: Schema) -> Decode:
        keys, items = schema.entry
        read_key, read, named = self.of(keys), self.of(items), keys.type is Type.STRING

        def decode(value: Any) -> dict[Any, Any]:
            if named and isinstance(value, dict):
                return {key: read(item) for key, item in value.items()}
            if not named and isinstance(value, list):
                return {read_key(key): read(item) for key, item in value}
            raise refused(schema, value)

        return decode

    def _scalar(self, schema: Schema) -> Decode:
        if schema.type is Type.BYTES:
            return _bytes(schema)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return _number(schema)
        if schema.type in (Type.STRING, Type.BOOLEAN):
            return _as_it_is(schema)
        return _integer(schema)


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
    if schema.name == DECIMAL:
        return _decimal(schema)
    whole = _integer(schema)
    low, high = range_of(schema)

    def decode(value: Any) -> Any:
        return convert(schema, value if value.__class__ is int and low <= value <= high else whole(value))

    return decode


def _decimal(schema: Schema) -> Decode:
    digits = _bytes(schema)
    of_bytes: Callable[[bytes], Decimal] | None = None

    def decode(value: Any) -> Decimal:
        nonlocal of_bytes
        if _is_number(value):
            return Decimal(value)
        if of_bytes is None:  # now, not before: a schema without a scale is a value's fault, not a connector's
            of_bytes = decimals_of(schema)
        return of_bytes(digits(value))

    return decode


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
    low, high = range_of(schema)

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
            with contextlib.suppress(ValueError, OverflowError):
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
