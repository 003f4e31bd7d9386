"""Converters that keep their schemas in a registry: what Avro and JSON Schema share."""

import abc
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

from ottla.connect.converters.base import Converter, usable_schema
from ottla.connect.converters.registry import Registry
from ottla.connect.errors import BadRecord
from ottla.connect.schema import Schema

Encode = Callable[[str, Any], bytes]
"""Bytes of a value for a topic. Raises BadRecord."""
Decode = Callable[[str, bytes], Any]
"""The value of bytes in a topic. Raises BadRecord."""
_REMEMBERED: Final = 1000
"""Schemas of each direction that are kept."""


class RegisteredConverter(Converter):
    """Values behind the number of their schema. Encoders and decoders are made once for each schema."""

    kind: ClassVar[Literal["AVRO", "JSON"]]
    """The registry's name for schemas of this form."""

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        self._registry = Registry(settings, self.kind, is_key=is_key)
        self._encoders: dict[int, tuple[Schema, str, Encode]] = {}
        self._decoders: dict[str, tuple[Schema, Decode]] = {}

    def close(self) -> None:
        """Let go of the registry."""
        self._registry.close()

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The value by its schema, which is registered if it is new. None without a schema is a tombstone.

        Raises BadRecord for any other value without a schema.
        """
        if schema is None:
            if value is None:
                return None
            raise BadRecord(f"{type(self).__name__} needs a schema, and a value for {topic} has none")
        known = self._encoders.get(id(schema))
        if known is None:
            if len(self._encoders) >= _REMEMBERED:
                self._encoders.clear()
            document, encode = self._encoder(schema)
            # with the schema, so that its id stays its own
            known = self._encoders[id(schema)] = (schema, json.dumps(document), encode)
        payload = known[2](topic, value)
        return self._registry.head(topic, known[1]) + payload

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """The value by the schema it was written with."""
        if payload is None:
            return None, None
        text, rest = self._registry.split(topic, payload)
        known = self._decoders.get(text)
        if known is None:
            if len(self._decoders) >= _REMEMBERED:
                self._decoders.clear()
            with usable_schema(topic):
                known = self._decoders[text] = self._decoder(json.loads(text))
        schema, decode = known
        return schema, decode(topic, rest)

    @abc.abstractmethod
    def _encoder(self, schema: Schema) -> tuple[Any, Encode]:
        """The registry's document for a schema, and what writes its values."""

    @abc.abstractmethod
    def _decoder(self, document: Any) -> tuple[Schema, Decode]:
        """The schema of a registry's document, and what reads its values."""
