"""`org.apache.kafka.connect.json.JsonConverter`: the same bytes as Kafka's for the same schema and value.

The JSON of a schema is written once and parsed once: most of each record is a schema, and the same one.
"""

import json
from binascii import b2a_base64
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from pydantic_core import from_json

from ottla.connect.converters.base import Converter, usable_schema
from ottla.connect.converters.java_text import Raw, double, quoted
from ottla.connect.converters.json_decoders import Decode, JsonDecoders, without_decimals
from ottla.connect.converters.json_encoders import Encode, JsonEncoders
from ottla.connect.converters.json_readers import ReadBytes, reader, struct_reader
from ottla.connect.converters.json_schema_text import from_json as from_json_schema
from ottla.connect.converters.json_schema_text import to_json
from ottla.connect.errors import BadRecord, ConfigError
from ottla.connect.schema import DECIMAL, Schema, Type

_REMEMBERED: Final = 1000
"""Schemas whose encoders are kept; `schemas.cache.size`."""

_PARSER: Final[Any] = json.JSONDecoder(parse_float=Decimal)
_FLOATS: Final[Any] = json.JSONDecoder()
_HEADS: Final = 8
"""Schemas of one topic that are known by their bytes: of partitions before and after a change, of several tables."""
_Head = tuple[Schema | None, ReadBytes, Callable[[bytes, bytes], Any] | None]
_NO_HEADS: Final[dict[bytes, _Head]] = {}
_SCHEMA: Final = '{"schema":'
_PAYLOAD: Final = ',"payload":'


class JsonConverter(Converter):
    """JSON, with the schema beside each value unless `schemas.enable` is false.

    Settings: schemas.enable (true), decimal.format (BASE64 or NUMERIC), replace.null.with.default (true),
    schemas.cache.size (1000).
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._with_schema = _boolean(settings, "schemas.enable", default=True)
        fill = _boolean(settings, "replace.null.with.default", default=True)
        form = settings.get("decimal.format", "BASE64").upper()
        if form not in ("BASE64", "NUMERIC"):
            raise ConfigError(f"decimal.format is BASE64 or NUMERIC, not {form!r}", "decimal.format")
        self._remembered = int(settings.get("schemas.cache.size", _REMEMBERED))
        self._encoders = JsonEncoders(fill=fill, numeric=form == "NUMERIC")
        self._decoders = JsonDecoders(fill=fill)
        self._encode_by: dict[int, tuple[Schema, Encode, bytes]] = {}
        self._read: dict[str, _Reading] = {}
        self._heads: dict[str, dict[bytes, _Head]] = {}
        """How the last records of each topic began, up to their payloads; what reads those."""

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """A JSON document; None without a schema is a tombstone."""
        if schema is None:
            if value is None:
                return None
            text = _plain(value)
            return (f'{{"schema":null,"payload":{text}}}' if self._with_schema else text).encode()
        known = self._encode_by.get(id(schema))
        if known is None:
            known = self._learn(schema)
        _, encode, head = known
        try:
            text = encode(value)
        except (TypeError, AttributeError, ValueError) as wrong:
            raise BadRecord(
                f"a value for {topic} does not fit its schema {schema.name or schema.type}: {wrong}"
            ) from None
        return head + text.encode() + b"}" if self._with_schema else text.encode()

    def _learn(self, schema: Schema) -> tuple[Schema, Encode, bytes]:
        if len(self._encode_by) >= self._remembered:
            self._encode_by.clear()
        head = _SCHEMA + json_text(to_json(schema, self._encoders.of)) + _PAYLOAD if self._with_schema else ""
        known = (schema, self._encoders.of(schema), head.encode())
        self._encode_by[id(schema)] = known  # with the schema, so that its id stays its own
        return known

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """The value by its schema, or what JSON has by itself."""
        if payload is None:
            return None, None
        if not self._with_schema:
            try:
                return None, from_json(payload)
            except ValueError:
                return None, _parsed(topic, payload)
        for head, (schema, read, read_struct) in self._heads.get(topic, _NO_HEADS).items():
            if read_struct is not None:
                value = read_struct(payload, head)
                if value is not None:
                    return schema, value
            if payload.startswith(head) and payload.endswith(b"}"):
                try:
                    return schema, read(payload[len(head) : -1])
                except (ValueError, RecursionError, BadRecord):
                    break  # the long way reports the error, if there is one
        return self._with_its_schema(topic, payload)

    def _with_its_schema(self, topic: str, payload: bytes) -> tuple[Schema | None, Any]:
        """A record whose schema is not that of those before, or that is not written as Kafka writes them."""
        document = _parsed(topic, payload, parse_float=Decimal)
        if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
            raise BadRecord(
                f'a record in {topic} has not just the fields "schema" and "payload"; '
                "for plain JSON set schemas.enable=false in the converter's settings"
            )
        written = document["schema"]
        text = json.dumps(written, sort_keys=True, default=str)
        known = self._read.get(text)
        if known is None:
            if len(self._read) >= self._remembered:
                self._read.clear()
            with usable_schema(topic):
                schema = from_json_schema(written, self._decoders.of)
                unread = self.unread(schema) if self.unread is not None and schema is not None else ()
                known = self._read[text] = _Reading(schema, self._decoders, unread)
        value = known.decode(document["payload"])
        head = _head(payload)
        if head is not None:
            heads = self._heads.setdefault(topic, {})
            if head in heads:  # the reader has just refused what is good
                known.read = _parsing(known.schema, known.decode)
            elif len(heads) >= _HEADS:
                heads.clear()
            heads[head] = (known.schema, known.read, known.read_struct)
        return known.schema, value


class _Reading:
    """How values of a schema are read: `decode` after a parser; `read` and, if there is one, `read_struct` from bytes,
    which may refuse what is good, and leave the fields out that are not read.
    """

    def __init__(self, schema: Schema | None, decoders: JsonDecoders, unread: Collection[str] = ()) -> None:
        self.schema = schema
        self.decode = without_decimals if schema is None else decoders.of(schema)
        of_read = schema
        if schema is not None and unread and schema.type is Type.STRUCT:
            of_read = replace(schema, fields=tuple([each for each in schema.fields if each.name not in unread]))
        self.read = reader(of_read, decoders)
        fast = struct_reader(schema, decoders, unread)
        self.read_struct = None if fast is None else fast.read


def _parsing(schema: Schema | None, decode: Decode) -> ReadBytes:
    """The slower reader that refuses nothing: numbers keep all digits where the schema has decimals."""
    parse = (_PARSER if schema is None or schema.has(DECIMAL) else _FLOATS).scan_once

    def read(payload: bytes) -> Any:
        text = payload.decode()
        try:
            document, end = parse(text, 0)
        except StopIteration as wrong:
            raise ValueError("no JSON") from wrong
        if end != len(text):
            raise ValueError("JSON, and more")
        return decode(document)

    return read


def json_text(value: Any) -> str:
    """A document as Jackson writes it: no spaces; numbers and strings as Java does. `Raw` stands as it is."""
    return _plain(value)


def _boolean(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = settings.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {text!r}", name)
    return text == "true"


def _parsed(topic: str, payload: bytes, **options: Any) -> Any:
    try:
        return json.loads(payload, **options)
    except (ValueError, RecursionError) as wrong:
        raise BadRecord(f"a record in {topic} is no JSON: {wrong}") from None


def _head(payload: bytes) -> bytes | None:
    """The beginning of a document as Kafka writes them, up to its payload; None: this is none."""
    try:
        text = payload.decode()
        if not text.startswith(_SCHEMA):
            return None
        _, end = _PARSER.raw_decode(text, len(_SCHEMA))
    except ValueError:
        return None
    end += len(_PAYLOAD)
    return text[:end].encode() if text.endswith(_PAYLOAD, 0, end) else None


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
        return f'"{b2a_base64(value, newline=False).decode()}"'
    if isinstance(value, list | tuple):
        return "[" + ",".join([_plain(item) for item in value]) + "]"
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return "{" + ",".join([f"{quoted(key)}:{_plain(item)}" for key, item in value.items()]) + "}"
        return "[" + ",".join([f"[{_plain(key)},{_plain(item)}]" for key, item in value.items()]) + "]"
    raise BadRecord(f"{type(value).__name__} has no form in JSON without a schema; give the record one")
