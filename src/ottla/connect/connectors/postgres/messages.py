"""PURE: what `pg_logical_emit_message` wrote, as records in a topic of their own: prefix.message.

    key    {prefix}
    value  {op: m, ts_ms, source, transaction, message: {prefix, content}}

Source: Debezium 3.2, `LogicalDecodingMessageMonitor` and `PostgresSchemaFactory` of its PostgreSQL connector.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.api import SourceRecord
from ottla.connect.connectors.capture.envelope import SourceBlock
from ottla.connect.connectors.capture.selection import Names
from ottla.connect.connectors.capture.types import TRANSACTION_BLOCK
from ottla.connect.connectors.postgres.decoding.incremental import PREFIX
from ottla.connect.connectors.postgres.decoding.pgoutput import LogicalMessage
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.schema import BYTES, INT64, STRING, Schema, struct

COLLECTION: Final = "LOGICAL_DECODING_MESSAGE"
"""What counts of a transaction call all messages, which are of no table."""

KEY: Final = struct("io.debezium.connector.postgresql.MessageKey", version=1, prefix=STRING.as_optional())

_ENCODERS: Final[Mapping[str, Callable[[bytes], str | bytes]]] = {
    "bytes": lambda content: content,
    "base64": lambda content: base64.b64encode(content).decode(),
    "base64-url-safe": lambda content: base64.urlsafe_b64encode(content).decode(),
    "hex": lambda content: content.hex(),
}


class Messages:
    """Makes the records. source: schema of the block with a message's source."""

    def __init__(self, settings: PostgresSettings, source: Schema) -> None:
        self._topic = f"{settings.topic_prefix}.message"
        self._names = Names(settings.message_prefix_include_list, settings.message_prefix_exclude_list)
        self._encode = _ENCODERS[settings.binary_handling_mode]
        content = BYTES if settings.binary_handling_mode == "bytes" else STRING
        message = struct(
            "io.debezium.connector.postgresql.Message",
            version=1,
            prefix=STRING.as_optional(),
            content=content.as_optional(),
        )
        self._schema = struct(
            "io.debezium.connector.postgresql.MessageValue",
            version=1,
            op=STRING,
            ts_ms=INT64.as_optional(),
            source=source,
            transaction=TRANSACTION_BLOCK,
            message=message,
        )

    def has(self, prefix: str) -> bool:
        """Whether messages of this prefix are captured: not the marks of incremental snapshots."""
        return prefix != PREFIX and self._names.has(prefix)

    def record(self, message: LogicalMessage, source: SourceBlock, now_ns: int) -> SourceRecord:
        """A message, in no transaction yet."""
        value: dict[str, Any] = {
            "op": "m",
            "ts_ms": now_ns // 1_000_000,
            "source": source,
            "transaction": None,
            "message": {"prefix": message.prefix, "content": self._encode(message.content)},
        }
        key = {"prefix": message.prefix}
        return SourceRecord(topic=self._topic, key=key, key_schema=KEY, value=value, value_schema=self._schema)
