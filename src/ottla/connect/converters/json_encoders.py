"""PURE: values by their schemas as JSON, in the bytes of Kafka's JsonConverter.

Each schema gets a function of its own, put together once: what is known of the schema is decided then, not for each
value. These are the innermost loops of every source.
"""

from binascii import b2a_base64
from collections.abc import Callable
from decimal import Context, Decimal, Inexact
from json.encoder import encode_basestring  # in C, where there is one
from typing import Any, Final

from ottla.connect.converters.java_text import double, quoted, single
from ottla.connect.converters.logical import TO_PLAIN, scale_of
from ottla.connect.errors import BadRecord
from ottla.connect.schema import DECIMAL, Schema, Type

Encode = Callable[[Any], str]

BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
"""Of whole numbers, without their sign."""
_EXACT: Final = Context(prec=1 << 16, traps=[Inexact])


class JsonEncoders:
    """Puts encoders together.

    fill: whether a null becomes its schema's default (`replace.null.with.default`). numeric: whether decimals are
    numbers in JSON, not Base64 of their digits (`decimal.format`).
    """

    def __init__(self, *, fill: bool, numeric: bool) -> None:
        self._fill = fill
        self._numeric = numeric

    def of(self, schema: Schema) -> Encode:
        """Values of a schema, None too. The encoder raises BadRecord for what does not fit."""
        write, null = self._not_null(schema), self._null(schema)
        if null is None:
            return write  # and refuses None as it refuses everything that does not fit
        return lambda value: null if value is None else write(value)

    def _null(self, schema: Schema) -> str | None:
        """What a None is in JSON; None: not allowed."""
        if schema.has_default and schema.default is not None and self._fill:
            return self._not_null(schema)(schema.default)
        return "null" if schema.optional else None

    def _not_null(self, schema: Schema) -> Encode:
        if schema.name in TO_PLAIN:
            return self._logical(schema)
        if schema.type is Type.STRUCT:
            return self._struct(schema)
        if schema.type is Type.ARRAY:
            return self._array(schema)
        if schema.type is Type.MAP:
            return self._map(schema)
        if schema.type in BITS:
            return _integer(schema)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return _number(schema)
        kinds = {Type.STRING: _string, Type.BOOLEAN: _boolean, Type.BYTES: _bytes}
        return kinds[schema.type](schema)

    def _logical(self, schema: Schema) -> Encode:
        assert schema.name is not None
        if schema.name == DECIMAL:
            return _decimal_number(schema) if self._numeric else _decimal_bytes(schema)
        convert = TO_PLAIN[schema.name]
        return lambda value: str(convert(schema, value))

    def _struct(self, schema: Schema) -> Encode:
        fields = [
            (f"{quoted(each.name)}:", each.name, self._not_null(each.schema), self._null(each.schema))
            for each in schema.fields
        ]

        def encode(value: Any) -> str:
            try:
                get = value.get
            except AttributeError:
                raise refused(schema, value) from None
            return (
                "{"
                + ",".join(
                    [
                        head + (write(item) if (item := get(name)) is not None else null or write(item))
                        for head, name, write, null in fields
                    ]
                )
                + "}"
            )

        return encode

    def _array(self, schema: Schema) -> Encode:
        assert schema.items is not None
        write = self.of(schema.items)

        def encode(value: Any) -> str:
            if not isinstance(value, list | tuple):
                raise refused(schema, value)
            return "[" + ",".join([write(item) for item in value]) + "]"

        return encode

    def _map(self, schema: Schema) -> Encode:
        assert schema.keys is not None
        assert schema.items is not None
        write_key, write = self.of(schema.keys), self.of(schema.items)
        named = schema.keys.type is Type.STRING

        def encode(value: Any) -> str:
            if not isinstance(value, dict):
                raise refused(schema, value)
            if named:
                return "{" + ",".join([f"{write_key(key)}:{write(item)}" for key, item in value.items()]) + "}"
            return "[" + ",".join([f"[{write_key(key)},{write(item)}]" for key, item in value.items()]) + "]"

        return encode


def refused(schema: Schema, value: Any) -> BadRecord:
    """Why a value is not written or read by a schema."""
    what = schema.name or schema.type
    if value is None:
        return BadRecord(f"null for a {what} that is required and has no default")
    if isinstance(value, int | float | Decimal) and schema.type is not Type.STRUCT:
        return BadRecord(f"{value!r} is no {what}")
    return BadRecord(f"a {what} was expected, not {type(value).__name__}")


def _integer(schema: Schema) -> Encode:
    low, high = -(1 << BITS[schema.type]), (1 << BITS[schema.type]) - 1

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
        if not isinstance(value, Decimal) or not value.is_finite():
            raise refused(schema, value)
        scaled = value.scaleb(scale, _EXACT)
        unscaled = int(scaled)
        if unscaled != scaled:
            raise BadRecord(f"{value} has more than the {scale} digits after the point that its schema allows")
        digits = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        return f'"{b2a_base64(digits, newline=False).decode()}"'

    return encode
