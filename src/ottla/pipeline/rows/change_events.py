"""Debezium's change events as rows of their table: in JSON, with or without schemas, or in Avro with a registry.

A topic has few schemas, and each record carries one of them, or its id: what reads its rows is found by the bytes
before the payload, and only the payload is parsed. PURE, but for the registry's answers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeGuard

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ottla.pipeline.change_columns import COLUMNS, DELETE, OP, TRUNCATE, TS
from ottla.pipeline.rows.avro_events import Written, written_as
from ottla.pipeline.rows.change_types import (
    Read,
    Schema,
    is_in_known_years,
    is_not_sent,
    plain_schema,
    reader,
)
from ottla.registry.client import MAGIC, Registry, framed
from ottla.registry.undecodable import Undecodable

UNKNOWN: Final = "__ottla_unknown"
"""The first column of the record's schema that the wanted rows do not have, or null."""
_HEADS: Final = 16
"""Schemas of one topic that are remembered: of partitions before and after the table was altered."""
_ROW_OPS: Final = ("c", "u", DELETE, "r")
_SCHEMA: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_JSON: Final = json.JSONDecoder(parse_float=Decimal)
_LONGEST_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """Change events of a table, decoded into the columns of `schema`, a StructType in its JSON form. With `truncates`,
    a truncate is a row of nulls. The `registry` knows the schemas of records in Avro."""

    schema: str
    truncates: bool = False
    registry: Registry | None = None

    def open(self) -> Callable[[bytes], dict[str, Any]]:
        """What decodes one record. Raises Undecodable, and RegistryError for a registry that does not answer."""
        return _Decoder(StructType.fromJson(json.loads(self.schema)), self.truncates, self.registry).decode


def event_schema(columns: StructType) -> StructType:
    """What `ChangeEvents` decodes a record into: the table's columns, and what is known of the change.

    Raises ValueError for a table that has a column of such a name itself.
    """
    taken = [name for name in columns.names if name in (*COLUMNS, UNKNOWN)]
    if taken:
        raise ValueError(f"the table has a column {taken[0]!r}, which is the name of a column of its changes")
    return StructType(
        [
            *(StructField(each.name, each.dataType) for each in columns.fields),
            StructField(OP, StringType()),
            StructField(TS, TimestampType()),
            StructField(UNKNOWN, StringType()),
        ]
    )


class Described(NamedTuple):
    """What a record shows of its table: the schema of a row, if the record has one, and the names in its key; none if
    they cannot be read. `has_key`: whether the record has a key at all. `place`: where the change is in the database's
    log, in order; empty if the record does not show it."""

    schema: Schema | None
    key: tuple[str, ...]
    has_key: bool
    place: tuple[str, int] | tuple[()] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The names of the row's columns; none without a schema."""
        return frozenset(each["field"] for each in (self.schema or {}).get("fields", ()))


def describe(key: bytes | None, value: bytes | None, registry: Registry | None = None) -> Described | None:
    """What is known of the table by this record; None if it is no change of a row.

    Raises Undecodable for one in Avro that cannot be read, RegistryError.
    """
    schema = None
    try:
        document: Any = None
        if is_framed(value):
            written, start = _written(value, registry)
            schema, document = _row_schema(written.schema), written.read(value, start)
        elif value is not None:
            document = _JSON.decode(value.decode())
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        envelope, document = document["schema"], document["payload"]
        schema = _row_schema(envelope)
        if envelope is not None and schema is None:
            return None
    if not isinstance(document, dict) or document.get("op") not in _ROW_OPS or not isinstance(_row(document), dict):
        return None
    return Described(schema, _key_names(key, registry), key is not None, _place(document.get("source")))


def _place(source: Any) -> tuple[str, int] | tuple[()]:
    """PostgreSQL's log is one, MySQL's are files in the order of their names."""
    if not isinstance(source, dict):
        return ()
    file, at = source.get("file", ""), source.get("lsn", source.get("pos"))
    return (file, at) if isinstance(file, str) and isinstance(at, int) else ()


def is_framed(value: bytes | None) -> TypeGuard[bytes]:
    """Whether a record is in a registry's wire format, and not in JSON."""
    return value is not None and value.startswith(bytes([MAGIC]))


def _written(value: bytes, registry: Registry | None) -> tuple[Written, int]:
    """The schema of a record in Avro, and where its data begin. Raises Undecodable, RegistryError."""
    if registry is None:
        raise Undecodable(
            "the record is in a registry's wire format (Avro), and no registry is named: give "
            "registry=registry('http://...')"
        )
    head = framed(value)
    found = registry.by_id(head.schema_id, "AVRO")
    try:
        return written_as(found.text, found.references), head.start
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Undecodable(f"the schema of id {head.schema_id} cannot be used: {error}") from error


def _key_names(key: bytes | None, registry: Registry | None) -> tuple[str, ...]:
    if is_framed(key):
        written, _ = _written(key, registry)
        return tuple(each["field"] for each in written.schema.get("fields", ()))
    try:
        document = None if key is None else json.loads(key)
    except (ValueError, RecursionError):
        return ()
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    return tuple(document) if isinstance(document, dict) else ()


def _row_schema(envelope: Any) -> Schema | None:
    fields = envelope.get("fields") if isinstance(envelope, dict) else None
    listed = fields if isinstance(fields, list) else ()
    found = [each for each in listed if isinstance(each, dict) and each.get("field") == "after"]
    return found[0] if found else None


class _Rows(NamedTuple):
    """How rows of one schema are read. `unknown`: see `UNKNOWN`."""

    fields: list[tuple[str, Read]]
    unknown: str | None


class _Decoder:
    def __init__(self, columns: StructType, truncates: bool, registry: Registry | None) -> None:
        self._truncates = truncates
        self._registry = registry
        self._of_ids: dict[int, tuple[Written, _Rows]] = {}
        self._columns = columns
        self._required = [each.name for each in columns.fields if not each.nullable]
        plain = {each.name: plain_schema(each.dataType) for each in columns.fields}
        self._plain = self._rows(plain, None)
        self._known: dict[bytes, _Rows] = {}

    def decode(self, value: bytes) -> dict[str, Any]:
        if is_framed(value):
            return self._decode_avro(value)
        for start, known in self._known.items():
            if value.startswith(start) and value.endswith(b"}"):
                return self._event(_parsed(value[len(start) : -1]), known)
        document = _parsed(value)
        if document.keys() != {"schema", "payload"}:
            return self._event(document, self._plain)
        rows = self._plain if document["schema"] is None else self._of_schema(document["schema"])
        head = _head(value)
        if head is not None:
            if len(self._known) >= _HEADS:
                self._known.clear()
            self._known[head] = rows
        return self._event(document["payload"], rows)

    def _decode_avro(self, value: bytes) -> dict[str, Any]:
        head = framed(value)
        if head.schema_id not in self._of_ids:
            written, _ = _written(value, self._registry)
            self._of_ids[head.schema_id] = written, self._of_schema(written.schema)
        written, rows = self._of_ids[head.schema_id]
        return self._event(written.read(value, head.start), rows)

    def _of_schema(self, envelope: Any) -> _Rows:
        schema = _row_schema(envelope)
        if schema is None or schema.get("type") != "struct":
            raise Undecodable("no change event of Debezium: its schema has no field 'after' with a row")
        try:
            own = {each["field"]: each for each in schema.get("fields", ())}
            unknown = next((name for name in own if name not in self._columns.names), None)
            return self._rows(own, unknown)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Undecodable(f"malformed schema: {type(error).__name__}: {error}") from error

    def _rows(self, own: Mapping[str, Schema], unknown: str | None) -> _Rows:
        wanted = {each.name: each.dataType for each in self._columns.fields}
        return _Rows([(name, reader(own[name], kind)) for name, kind in wanted.items() if name in own], unknown)

    def _event(self, event: Any, rows: _Rows) -> dict[str, Any]:
        if not isinstance(event, dict) or "op" not in event:
            raise Undecodable("no change event of Debezium: it has no 'op'")
        op = event["op"]
        if op == TRUNCATE and self._truncates:
            return {OP: op, TS: _time_us(event), UNKNOWN: rows.unknown}
        if op == TRUNCATE:
            raise Undecodable("the table was truncated (op 't'): this event has no row, and no place among the others")
        if op not in _ROW_OPS:
            raise Undecodable(f"unknown operation: op is {_shown(op)}")
        row = _row(event)
        if not isinstance(row, dict):
            side = "before" if op == DELETE else "after"
            raise Undecodable(f"no row: op is {op!r}, and '{side}' is {_shown(row)}")
        found = {name: self._value(name, read, row) for name, read in rows.fields}
        if op != DELETE:
            for name in self._required:
                if found.get(name) is None:
                    raise Undecodable(f"missing required field '{name}'")
        return {**found, OP: op, TS: _time_us(event), UNKNOWN: rows.unknown}

    def _value(self, name: str, read: Read, row: Mapping[str, Any]) -> Any:
        value = row.get(name)
        if value is None:
            return None
        if is_not_sent(value):
            raise Undecodable(
                f"the database did not send '{name}', which is stored out of line and did not change: set REPLICA "
                "IDENTITY FULL for the table"
            )
        try:
            return read(value)
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, RecursionError):
            wanted = self._columns[name].dataType.simpleString().upper()
            raise Undecodable(f"wrong type: '{name}' is {_shown(value)}, not {wanted}") from None


def _time_us(event: Mapping[str, Any]) -> int | None:
    """When the database made the change, in microseconds since 1970; None if that is no time."""
    source = event.get("source")
    ts_ms = source.get("ts_ms") if isinstance(source, dict) else None
    if not isinstance(ts_ms, int) or isinstance(ts_ms, bool):
        return None
    return ts_ms * 1000 if is_in_known_years(ts_ms * 1000) else None


def _row(event: Mapping[str, Any]) -> Any:
    """The row after the change, or before a delete."""
    return event.get("before" if event["op"] == DELETE else "after")


def _parsed(value: bytes) -> Any:
    try:
        document = _JSON.decode(value.decode())
    except UnicodeDecodeError:
        raise Undecodable("not UTF-8") from None
    except (ValueError, RecursionError):
        raise Undecodable("malformed JSON") from None
    if not isinstance(document, dict):
        raise Undecodable("not one JSON object")
    return document


def _head(value: bytes) -> bytes | None:
    """The bytes up to the payload, as Kafka's JsonConverter writes them; None if they are not written so."""
    if not value.startswith(_SCHEMA):
        return None
    text = value.decode()
    try:
        _, end = _JSON.raw_decode(text, len(_SCHEMA))
    except ValueError:  # a blank after the colon
        return None
    head = text[:end].encode() + _PAYLOAD
    return head if value.startswith(head) else None


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except RecursionError:  # a few calls deeper than where it could still be read
        return "nested too deep"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
