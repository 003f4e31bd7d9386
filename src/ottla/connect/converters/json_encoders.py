"""PURE: values by their schemas as JSON, in the bytes of Kafka's JsonConverter.

These are the innermost loops of every source.
"""

from binascii import b2a_base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from json.encoder import encode_basestring  # in C, where there is one
from typing import Any, Final

from ottla.connect.converters.by_schema import BySchema, range_of, refused
from ottla.connect.converters.java_text import double, quoted, single
from ottla.connect.converters.logical import TO_PLAIN, scale_of, unscaled_bytes
from ottla.connect.schema import DECIMAL, Schema, Shared, Type

Encode = Callable[[Any], str]


class JsonEncoders(BySchema[str]):
    """Puts encoders together. numeric: whether decimals are numbers in JSON, not Base64 of their digits."""

    def __init__(self, *, fill: bool, numeric: bool) -> None:
        super().__init__(fill=fill)
        self._numeric = numeric

    def of_null(self, schema: Schema) -> tuple[bool, str]:
        allowed, default = super().of_null(schema)
        return allowed, "null" if default is None else self._not_null(schema)(default)

    def _logical(self, schema: Schema) -> Encode:
        assert schema.name is not None
        if schema.name == DECIMAL:
            return _decimal_number(schema) if self._numeric else _decimal_bytes(schema)
        convert = TO_PLAIN[schema.name]
        return lambda value: str(convert(schema, value))

    def _struct(self, schema: Schema) -> Encode:
        fields = [
            (f"{quoted(each.name)}:", each.name, self._not_null(each.schema), null if allowed else None)
            for each in schema.fields
            for allowed, null in (self.of_null(each.schema),)
        ]

        last: tuple[Any, str] = (None, "")

        def encode(value: Any) -> str:
            nonlocal last
            if value is last[0]:
                return last[1]
            try:
                get = value.get
            except AttributeError:
                raise refused(schema, value) from None
            text = (
                "{"
                + ",".join(
                    [
                        head + (write(item) if (item := get(name)) is not None else null or write(item))
                        for head, name, write, null in fields
                    ]
                )
                + "}"
            )
            if value.__class__ is Shared:
                last = value, text
            return text

        return encode

    def _array(self, schema: Schema) -> Encode:
        write = self.of(schema.element)

        def encode(value: Any) -> str:
            if not isinstance(value, list | tuple):
                raise refused(schema, value)
            return "[" + ",".join([write(item) for item in value]) + "]"

        return encode

    def _map(self, schema: Schema) -> Encode:
        keys, items = schema.entry
        write_key, write, named = self.of(keys), self.of(items), keys.type is Type.STRING

        def encode(value: Any) -> str:
            if not isinstance(value, dict):
                raise refused(schema, value)
            if named:
                return "{" + ",".join([f"{write_key(key)}:{write(item)}" for key, item in value.items()]) + "}"
            return "[" + ",".join([f"[{write_key(key)},{write(item)}]" for key, item in value.items()]) + "]"

        return encode

    def _scalar(self, schema: Schema) -> Encode:
        return _SCALARS[schema.type](schema)


def _integer(schema: Schema) -> Encode:
    low, high = range_of(schema)

    def encode(value: Any) -> str:
        if value.__class__ is int and low <= value <= high:
            return str(value)
        raise refused(schema, value)

    return encode


def _string(schema: Schema) -> Encode:
    def encode(value: Any) -> str:
        if value.__class__ is str:
            plain: str = encode_basestring(value)
            if plain.isascii() and "\\u00" not in plain:
                return plain
        elif not isinstance(value, str):
            raise refused(schema, value)
        return quoted(value)

    return encode


def _boolean(schema: Schema) -> Encode:
    def encode(value: Any) -> str:
        if value is True:
            return "true"
        if value is False:
            return "false"
        raise refused(schema, value)

    return encode


def _number(schema: Schema) -> Encode:
    write = single if schema.type is Type.FLOAT32 else double

    def encode(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refused(schema, value)
        return write(float(value))

    return encode


def _bytes(schema: Schema) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise refused(schema, value)
        return f'"{b2a_base64(value, newline=False).decode()}"'

    return encode


def _decimal_number(schema: Schema) -> Encode:
    def encode(value: Any) -> str:
        if not isinstance(value, Decimal):
            raise refused(schema, value)
        return str(value)

    return encode


def _decimal_bytes(schema: Schema) -> Encode:
    scale = scale_of(schema)

    def encode(value: Any) -> str:
        if not isinstance(value, Decimal):
            raise refused(schema, value)
        return f'"{b2a_base64(unscaled_bytes(value, scale), newline=False).decode()}"'

    return encode


_SCALARS: Final[Mapping[Type, Callable[[Schema], Encode]]] = {
    Type.INT8: _integer,
    Type.INT16: _integer,
    Type.INT32: _integer,
    Type.INT64: _integer,
    Type.FLOAT32: _number,
    Type.FLOAT64: _number,
    Type.STRING: _string,
    Type.BOOLEAN: _boolean,
    Type.BYTES: _bytes,
}
