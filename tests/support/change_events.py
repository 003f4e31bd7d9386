"""Change events as `postgres-source` writes them: by its own types, envelope and converter."""

from collections.abc import Sequence
from typing import Any, Final

from ottla.connect.api import SourceRecord
from ottla.connect.connectors.capture.envelope import Column, TableEvents
from ottla.connect.connectors.postgres.decoding.changes import SOURCE
from ottla.connect.connectors.postgres.decoding.types import PostgresType, map_type
from ottla.connect.connectors.postgres.settings import PostgresSettings
from ottla.connect.converters.avro_converter import AvroConverter
from ottla.connect.converters.base import Converter
from ottla.connect.converters.json_converter import JsonConverter

UNSENT: Final = object()
"""Stands for a value that PostgreSQL stores out of line and did not send."""
AT_MS: Final = 1_767_225_600_000
"""When everything happens, unless a table has other times: 2026-01-01."""

Event = tuple[bytes | None, bytes | None]
"""Key and value of a record."""

_TYPES: Final = (
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "money", "bytea", "bit", "text", "json", "uuid",
    "date", "time", "timestamp", "timestamptz", "timetz", "interval", "hstore", "point",
)  # fmt: skip
_KNOWN: Final = {
    **{number: PostgresType(number, name) for number, name in enumerate(_TYPES)},
    **{100 + number: PostgresType(100 + number, f"_{name}", element_oid=number) for number, name in enumerate(_TYPES)},
    200: PostgresType(200, "mood", kind="e", labels=("sad", "ok")),
}
_OIDS: Final = {each.name: oid for oid, each in _KNOWN.items()}


def numeric(precision: int, scale: int) -> int:
    """The type modifier of numeric(precision, scale)."""
    return (precision << 16) + (scale & 0x7FF) + 4


class CapturedTable:
    """One table. `columns`: name, PostgreSQL's type and its modifier (-1: none); those of the key are not null.

    `schemas`: whether records carry them; with the address of a `registry`, they are Avro. `settings` are the
    connector's, such as `decimal_handling_mode`.
    """

    def __init__(
        self,
        *columns: tuple[str, str, int],
        key: Sequence[str] = ("id",),
        topic: str = "shop.public.customers",
        schemas: bool = True,
        registry: str | None = None,
        **settings: str,
    ) -> None:
        given = {"database_hostname": "h", "database_user": "u", "database_dbname": "d", "topic_prefix": "shop"}
        modes = PostgresSettings.model_validate({**given, **settings})
        made = []
        for index, (name, kind, modifier) in enumerate(columns):
            mapped = map_type(_OIDS[kind], modifier, _KNOWN, modes)
            schema = mapped.schema if name in key else mapped.schema.as_optional()
            made.append(
                Column(name, index, schema, mapped.convert, mapped.when_unchanged, when_missing=mapped.when_missing)
            )
        self._events = TableEvents(topic, made, key, SOURCE, unchanged=UNSENT)
        self._topic = topic
        self._converter: Converter = JsonConverter({"schemas.enable": str(schemas).lower()})
        self._key_converter: Converter = self._converter
        if registry is not None:
            self._key_converter, self._converter = (
                AvroConverter({"schema.registry.url": registry}, is_key=is_key) for is_key in (True, False)
            )
        self._lsn = 0
        self.at_ms = AT_MS
        """When the next change happens."""

    def close(self) -> None:
        """Let go of the registry."""
        self._key_converter.close()
        self._converter.close()

    def created(self, *values: Any, op: str = "c") -> list[Event]:
        """An insert, or with `op` r a row that a snapshot read. Values are PostgreSQL's texts, None, or UNSENT."""
        return self._written([self._events.created(values, self._source(), self.at_ms * 1_000_000, op)])

    def updated(self, *values: Any, old: Sequence[Any] | None = None) -> list[Event]:
        """An update; `old` are the former values if the server sends them, as it does where the key changed."""
        return self._written(self._events.updated(old, old is not None, values, self._source(), self.at_ms * 1_000_000))

    def deleted(self, *values: Any) -> list[Event]:
        """A delete and its tombstone; the server sends the values of the key alone."""
        return self._written(self._events.deleted(values, self._source(), self.at_ms * 1_000_000))

    def truncated(self) -> list[Event]:
        return self._written([self._events.truncated(self._source(), self.at_ms * 1_000_000)])

    def _source(self) -> dict[str, Any]:
        self._lsn += 1
        names = {"version": "3.2.0.Final", "connector": "postgresql", "name": "shop", "db": "d", "schema": "public"}
        times = {"ts_ms": self.at_ms, "ts_us": self.at_ms * 1_000, "ts_ns": self.at_ms * 1_000_000}
        place = {"table": "customers", "txId": 7, "lsn": self._lsn, "xmin": None, "sequence": "[null,null]"}
        return {**names, **times, **place, "snapshot": "false"}

    def _written(self, records: list[SourceRecord]) -> list[Event]:
        return [
            (
                self._key_converter.to_bytes(self._topic, each.key_schema, each.key),
                self._converter.to_bytes(self._topic, each.value_schema, each.value),
            )
            for each in records
        ]
