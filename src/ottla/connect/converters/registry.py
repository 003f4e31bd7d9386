"""What converters share that keep schemas in a registry: the wire format, and the client.

0   magic: 0
1   id of the schema, four bytes, big-endian
5   the value
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from ottla.connect.errors import BadRecord, ConfigError, ConnectError, Retriable

_HEAD: Final = struct.Struct(">bI")
_BUSY: Final = (408, 429)
_NOT_LET_IN: Final = (401, 403, 407)
_TROUBLE: Final = 500


class Registry:
    """A registry as one converter sees it. kind: AVRO or JSON. Raises ConfigError for bad settings."""

    def __init__(self, settings: Mapping[str, str], kind: str, *, is_key: bool) -> None:
        url = settings.get("schema.registry.url")
        if not url:
            side = "key" if is_key else "value"
            raise ConfigError(f"{side}.converter.schema.registry.url is missing", f"{side}.converter")
        client: dict[str, Any] = {"url": url}
        if "basic.auth.user.info" in settings:
            client["basic.auth.user.info"] = settings["basic.auth.user.info"]
        self._client, self._kind, self._url = SchemaRegistryClient(client), kind, url
        self._suffix = "-key" if is_key else "-value"
        self._register = settings.get("auto.register.schemas", "true").lower() == "true"
        self._ids: dict[tuple[str, str], int] = {}
        self._texts: dict[int, str] = {}

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def head(self, topic: str, text: str) -> bytes:
        """The first five bytes of a value with a schema, which is registered if it is new."""
        subject = topic + self._suffix
        known = self._ids.get((subject, text))
        if known is None:
            schema = RegisteredSchema(text, self._kind)
            ask = self._client.register_schema if self._register else self._id_of
            known = self._ids[subject, text] = int(self._asked(lambda: ask(subject, schema), subject))
        return _HEAD.pack(0, known)

    def split(self, topic: str, payload: bytes) -> tuple[str, bytes]:
        """The schema's text, and the rest. Raises BadRecord for what is not in this format."""
        if len(payload) < _HEAD.size or payload[0] != 0:
            raise BadRecord(f"a record in {topic} does not begin as a registry's values do")
        number: int = _HEAD.unpack_from(payload)[1]
        text = self._texts.get(number)
        if text is None:
            found = self._asked(lambda: self._client.get_schema(number), f"schema {number}")
            text = self._texts[number] = str(found.schema_str)
        return text, payload[_HEAD.size :]

    def _id_of(self, subject: str, schema: RegisteredSchema) -> int:
        registered = self._client.lookup_schema(subject, schema)
        assert registered.schema_id is not None
        return registered.schema_id

    def _asked(self, question: Any, what: str) -> Any:
        try:
            return question()
        except SchemaRegistryError as failure:
            status = failure.http_status_code
            if status >= _TROUBLE or status in _BUSY:
                raise Retriable(f"the registry {self._url} cannot answer now: {failure.error_message}") from None
            if status in _NOT_LET_IN:
                raise ConnectError(
                    f"the registry {self._url} does not let this client ask for {what} ({status}): "
                    f"{failure.error_message}; check basic.auth.user.info"
                ) from None
            raise BadRecord(f"the registry {self._url} refuses {what}: {failure.error_message}") from None
        except Exception as failure:  # of its HTTP library, whichever that is
            reason = f"{type(failure).__name__}: {failure}"
            raise Retriable(f"the registry {self._url} does not answer: {reason}") from failure
