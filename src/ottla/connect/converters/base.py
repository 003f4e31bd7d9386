"""What a converter is, and the three that hardly convert."""

import abc
import struct as binary
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ottla.connect.errors import BadRecord, ConfigError
from ottla.connect.schema import BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, Schema

MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a schema or a value raises that is not built as it should be."""


class Converter(abc.ABC):
    """Bytes in a topic, and a schema with a value in Connect. Raises BadRecord for what does not fit."""

    unread: Callable[[Schema], Collection[str]] | None = None
    """Names of unused fields of structs with a schema: `to_value` may leave them out."""

    @abc.abstractmethod
    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """What goes into the topic."""

    @abc.abstractmethod
    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """What came out of it."""

    def close(self) -> None:  # noqa: B027 # most hold nothing
        """Let go of connections."""


@contextmanager
def usable_schema(topic: str) -> Iterator[None]:
    """Raises BadRecord in place of what reading a malformed schema of a record raises."""
    try:
        yield
    except MALFORMED as wrong:
        reason = f"{type(wrong).__name__}: {wrong}"
        raise BadRecord(f"the schema of a record in {topic} cannot be used ({reason})") from None


class StringConverter(Converter):
    """`org.apache.kafka.connect.storage.StringConverter`: text in UTF-8; other values as Java prints them."""

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        self._encoding = settings.get("converter.encoding", "UTF-8")

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Text as bytes; None stays None."""
        if value is None:
            return None
        text = value if isinstance(value, str) else _as_java_prints(value)
        return text.encode(self._encoding)

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """An optional string."""
        if payload is None:
            return _OPTIONAL_STRING, None
        try:
            return _OPTIONAL_STRING, payload.decode(self._encoding)
        except UnicodeDecodeError as wrong:
            raise BadRecord(f"the bytes in {topic} are no text in {self._encoding}: {wrong.reason}") from None


def _as_java_prints(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        raise BadRecord("StringConverter got bytes; ByteArrayConverter takes them as they are")
    return str(value)


class ByteArrayConverter(Converter):
    """`org.apache.kafka.connect.converters.ByteArrayConverter`: bytes as they are."""

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The same bytes."""
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise BadRecord(f"ByteArrayConverter takes bytes only, and {topic} got {type(value).__name__}")
        return None if value is None else bytes(value)

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """The same bytes."""
        return _OPTIONAL_BYTES, payload


class NumberConverter(Converter):
    """`org.apache.kafka.connect.converters.{Short,Integer,Long,Float,Double}Converter`: one number, big-endian."""

    def __init__(self, schema: Schema, layout: str) -> None:
        self._schema, self._optional, self._layout = schema, schema.as_optional(), binary.Struct(layout)

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Two, four or eight bytes."""
        try:
            return None if value is None else self._layout.pack(value)
        except binary.error as wrong:
            raise BadRecord(f"{topic} got {value!r}, which is no {self._schema.type}: {wrong}") from None

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """The number."""
        if payload is None:
            return self._optional, None
        if len(payload) != self._layout.size:
            raise BadRecord(f"{len(payload)} bytes in {topic} are no {self._schema.type}")
        return self._optional, self._layout.unpack(payload)[0]


_OPTIONAL_STRING: Final = STRING.as_optional()
_OPTIONAL_BYTES: Final = BYTES.as_optional()

_NUMBERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "ShortConverter": (INT16, ">h"),
    "IntegerConverter": (INT32, ">i"),
    "LongConverter": (INT64, ">q"),
    "FloatConverter": (FLOAT32, ">f"),
    "DoubleConverter": (FLOAT64, ">d"),
}


def _json(settings: Mapping[str, str], is_key: bool) -> Converter:
    from ottla.connect.converters.json_converter import JsonConverter

    return JsonConverter(settings)


def _avro(settings: Mapping[str, str], is_key: bool) -> Converter:
    from ottla.connect.converters.avro_converter import AvroConverter

    return AvroConverter(settings, is_key=is_key)


def _json_schema(settings: Mapping[str, str], is_key: bool) -> Converter:
    from ottla.connect.converters.json_schema_converter import JsonSchemaConverter

    return JsonSchemaConverter(settings, is_key=is_key)


def _number(schema: Schema, layout: str) -> Callable[[Mapping[str, str], bool], Converter]:
    return lambda settings, is_key: NumberConverter(schema, layout)


CONVERTERS: Final[Mapping[str, Callable[[Mapping[str, str], bool], Converter]]] = {
    "org.apache.kafka.connect.json.JsonConverter": _json,
    "org.apache.kafka.connect.storage.StringConverter": lambda settings, is_key: StringConverter(
        settings, is_key=is_key
    ),
    "org.apache.kafka.connect.converters.ByteArrayConverter": lambda settings, is_key: ByteArrayConverter(
        settings, is_key=is_key
    ),
    "io.confluent.connect.avro.AvroConverter": _avro,
    "io.confluent.connect.json.JsonSchemaConverter": _json_schema,
    **{f"org.apache.kafka.connect.converters.{name}": _number(*each) for name, each in _NUMBERS.items()},
}
"""By the class names of Kafka Connect and of the registry's converters; the last part of the name will do."""


def converter(name: str, settings: Mapping[str, str], *, is_key: bool, setting: str) -> Converter:
    """The converter with a class's name.

    settings: without their prefix (`value.converter.`). setting: whose value `name` is. Raises ConfigError.
    """
    made = CONVERTERS.get(name) or next((make for full, make in CONVERTERS.items() if full.endswith(f".{name}")), None)
    if made is None:
        known = ", ".join(sorted(full.rpartition(".")[2] for full in CONVERTERS))
        raise ConfigError(f"there is no converter {name!r}; known are {known}", setting)
    return made(settings, is_key)
