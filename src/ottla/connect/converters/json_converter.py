"""`org.apache.kafka.connect.json.JsonConverter`: the same bytes as Kafka's for the same schema and value.

For each schema an encoder is put together once, of one function per field, and the JSON of the schema is kept with it.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from ottla.connect.converters.base import Converter
from ottla.connect.converters.java_text import Raw, double, quoted, single
from ottla.connect.converters.json_schema_text import from_json, to_json
from ottla.connect.converters.logical import FROM_PLAIN, TO_PLAIN
from ottla.connect.errors import BadRecord, ConfigError
from ottla.connect.schema import DECIMAL, Schema, Type

_REMEMBERED: Final = 1000
"""Schemas whose encoders are kept; `schemas.cache.size`."""

Encode = Callable[[Any], str]
Decode = Callable[[Any], Any]


class JsonConverter(Converter):
    """JSON, with the schema beside each value unless `schemas.enable` is false.

    Settings: schemas.enable (true), decimal.format (BASE64 or NUMERIC), replace.null.with.default (true),
    schemas.cache.size (1000).
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._with_schema = _boolean(settings, "schemas.enable", default=True)
        self._fill = _boolean(settings, "replace.null.with.default", default=True)
        form = settings.get("decimal.format", "BASE64").upper()
        if form not in ("BASE64", "NUMERIC"):
            raise ConfigError(f"decimal.format is BASE64 or NUMERIC, not {form!r}", "decimal.format")
        self._numeric = form == "NUMERIC"
        self._remembered = int(settings.get("schemas.cache.size", _REMEMBERED))
        self._encoders: dict[int, tuple[Schema, Encode, str]] = {}
        self._by_schema: dict[int, tuple[Schema, Decode]] = {}
        self._decoders: dict[str, tuple[Schema | None, Decode]] = {}

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """A JSON document; None without a schema is a tombstone."""
        if schema is None:
            if value is None:
                return None
            text = _plain(value)
            return (f'{{"schema":null,"payload":{text}}}' if self._with_schema else text).encode()
        known = self._encoders.get(id(schema))
        if known is None:
            if len(self._encoders) >= self._remembered:
                self._encoders.clear()
            encode = self._encoder(schema)
            head = f'{{"schema":{json_text(to_json(schema, self._encoder))},"payload":' if self._with_schema else ""
            known = self._encoders[id(schema)] = (schema, encode, head)  # holds the schema, so its id stays its own
        _, encode, head = known
        try:
            text = encode(value)
        except (TypeError, AttributeError, ValueError) as wrong:
            raise BadRecord(
                f"a value for {topic} does not fit its schema {schema.name or schema.type}: {wrong}"
            ) from None
        return f"{head}{text}}}".encode() if self._with_schema else text.encode()

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """The value by its schema, or what JSON has by itself."""
        if payload is None:
            return None, None
        try:
            document = json.loads(payload, parse_float=Decimal) if self._with_schema else json.loads(payload)
        except (ValueError, RecursionError) as wrong:
            raise BadRecord(f"a record in {topic} is no JSON: {wrong}") from None
        if not self._with_schema:
            return None, document
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            raise BadRecord(
                f'a record in {topic} has not just the fields "schema" and "payload"; '
                "for plain JSON set schemas.enable=false in the converter's settings"
            )
        written = document["schema"]
        if written is None:
            return None, _without_decimals(document["payload"])
        text = json.dumps(written, sort_keys=True, default=str)
        known = self._decoders.get(text)
        if known is None:
            if len(self._decoders) >= self._remembered:
                self._decoders.clear()
            schema = from_json(written, self._decoder)
            known = self._decoders[text] = (schema, self._decoder(schema))
        return known[0], known[1](document["payload"])

    def decoded(self, schema: Schema, document: Any) -> Any:
        """A value by its schema, from what JSON has."""
        known = self._by_schema.get(id(schema))
        if known is None:
            known = self._by_schema[id(schema)] = (schema, self._decoder(schema))
        return known[1](document)

    # -- encoders ------------------------------------------------------------------------------------------------

    def _encoder(self, schema: Schema) -> Encode:
        inner = self._encoder_of_type(schema)
        if schema.has_default and schema.default is not None and self._fill:
            filled = inner(schema.default)
            return lambda value: filled if value is None else inner(value)
        if schema.optional:
            return lambda value: "null" if value is None else inner(value)

        def required(value: Any) -> str:
            if value is None:
                raise BadRecord(f"null for a {schema.name or schema.type} that is required and has no default")
            return inner(value)

        return required

    def _encoder_of_type(self, schema: Schema) -> Encode:
        if schema.name in TO_PLAIN:
            return self._logical_encoder(schema)
        if schema.type is Type.STRUCT:
            return self._struct_encoder(schema)
        if schema.type is Type.ARRAY:
            assert schema.items is not None
            each = self._encoder(schema.items)
            return lambda value: "[" + ",".join([each(item) for item in _expect(value, list | tuple, schema)]) + "]"
        if schema.type is Type.MAP:
            return self._map_encoder(schema)
        return _ENCODERS[schema.type]

    def _logical_encoder(self, schema: Schema) -> Encode:
        assert schema.name is not None
        convert = TO_PLAIN[schema.name]
        if schema.name != DECIMAL:
            return lambda value: str(convert(schema, value))
        if self._numeric:
            return lambda value: str(_expect(value, Decimal, schema))
        return lambda value: _base64(convert(schema, value))

    def _struct_encoder(self, schema: Schema) -> Encode:
        fields = [(f"{quoted(each.name)}:", each.name, self._encoder(each.schema)) for each in schema.fields]

        def encode(value: Any) -> str:
            get = value.get
            return "{" + ",".join([head + write(get(name)) for head, name, write in fields]) + "}"

        return encode

    def _map_encoder(self, schema: Schema) -> Encode:
        assert schema.keys is not None
        assert schema.items is not None
        write_key, write = self._encoder(schema.keys), self._encoder(schema.items)
        if schema.keys.type is Type.STRING:
            return lambda value: "{" + ",".join([f"{write_key(k)}:{write(v)}" for k, v in value.items()]) + "}"
        return lambda value: "[" + ",".join([f"[{write_key(k)},{write(v)}]" for k, v in value.items()]) + "]"

    # -- decoders ------------------------------------------------------------------------------------------------

    def _decoder(self, schema: Schema | None) -> Decode:
        if schema is None:
            return _without_decimals
        inner = self._decoder_of_type(schema)

        def decode(value: Any) -> Any:
            if value is not None:
                return inner(value)
            if schema.has_default and schema.default is not None and self._fill:
                return schema.default
            if schema.optional:
                return None
            raise BadRecord(f"null for a {schema.name or schema.type} that is required")

        return decode

    def _decoder_of_type(self, schema: Schema) -> Decode:
        if schema.name is not None and schema.name in FROM_PLAIN:
            convert = FROM_PLAIN[schema.name]
            if schema.name != DECIMAL:
                return lambda value: convert(schema, _expect(value, int, schema))
            return lambda value: (
                Decimal(value) if isinstance(value, int | Decimal) else convert(schema, _from_base64(value, schema))
            )
        if schema.type is Type.STRUCT:
            fields = [(each.name, self._decoder(each.schema)) for each in schema.fields]
            return lambda value: {name: decode(_expect(value, dict, schema).get(name)) for name, decode in fields}
        if schema.type is Type.ARRAY:
            each = self._decoder(schema.items)
            return lambda value: [each(item) for item in _expect(value, list, schema)]
        if schema.type is Type.MAP:
            return self._map_decoder(schema)
        if schema.type is Type.BYTES:
            return lambda value: _from_base64(value, schema)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return lambda value: float(_expect(value, int | float | Decimal | str, schema))
        if schema.type is Type.BOOLEAN:
            return lambda value: _expect(value, bool, schema)
        if schema.type is Type.STRING:
            return lambda value: _expect(value, str, schema)
        return lambda value: _integer(value, schema)

    def _map_decoder(self, schema: Schema) -> Decode:
        assert schema.keys is not None
        read_key, read = self._decoder(schema.keys), self._decoder(schema.items)
        if schema.keys.type is Type.STRING:
            return lambda value: {key: read(item) for key, item in _expect(value, dict, schema).items()}
        return lambda value: {read_key(key): read(item) for key, item in _expect(value, list, schema)}


def json_text(value: Any) -> str:
    """A document as Jackson writes it: no spaces; numbers and strings as Java does. `Raw` stands as it is."""
    return _plain(value)


def _boolean(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = settings.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {text!r}", name)
    return text == "true"


def _expect(value: Any, kind: Any, schema: Schema) -> Any:
    if not isinstance(value, kind):
        raise BadRecord(f"a {schema.name or schema.type} was expected, not {type(value).__name__}")
    return value


_BOUNDS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}


def _integer(value: Any, schema: Schema) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRecord(f"a {schema.name or schema.type} was expected, not {type(value).__name__}")
    number = int(value)
    if not -(1 << _BOUNDS[schema.type]) <= number < 1 << _BOUNDS[schema.type]:
        raise BadRecord(f"{number} is beyond {schema.type}")
    return number


def _base64(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _from_base64(value: Any, schema: Schema) -> bytes:
    try:
        return base64.b64decode(_expect(value, str, schema), validate=True)
    except (binascii.Error, ValueError):
        raise BadRecord("bytes in JSON are in Base64, and these are not") from None


def _write_int(bits: int, name: str) -> Encode:
    low, high = -(1 << bits), (1 << bits) - 1

    def write(value: Any) -> str:
        if type(value) is not int or not low <= value <= high:
            raise BadRecord(f"{value!r} is no {name}")
        return str(value)

    return write


def _write_string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadRecord(f"a string was expected, not {type(value).__name__}")
    return quoted(value)


def _write_boolean(value: Any) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    raise BadRecord(f"a boolean was expected, not {type(value).__name__}")


def _write_double(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord(f"a number was expected, not {type(value).__name__}")
    return double(float(value))


def _write_single(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord(f"a number was expected, not {type(value).__name__}")
    return single(float(value))


def _write_bytes(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise BadRecord(f"bytes were expected, not {type(value).__name__}")
    return _base64(bytes(value))


_ENCODERS: Final[Mapping[Type, Encode]] = {
    **{kind: _write_int(bits, str(kind)) for kind, bits in _BOUNDS.items()},
    Type.FLOAT32: _write_single,
    Type.FLOAT64: _write_double,
    Type.BOOLEAN: _write_boolean,
    Type.STRING: _write_string,
    Type.BYTES: _write_bytes,
}


def _plain(value: Any) -> str:
    """A value without a schema, by its type in Python."""
    if value is None:
        return "null"
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return double(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _base64(bytes(value))
    if isinstance(value, list | tuple):
        return "[" + ",".join([_plain(item) for item in value]) + "]"
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return "{" + ",".join([f"{quoted(key)}:{_plain(item)}" for key, item in value.items()]) + "}"
        return "[" + ",".join([f"[{_plain(key)},{_plain(item)}]" for key, item in value.items()]) + "]"
    raise BadRecord(f"{type(value).__name__} has no form in JSON without a schema; give the record one")


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_without_decimals(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_decimals(item) for key, item in value.items()}
    return value
