"""PURE: Debezium's change events in JSON, with or without schemas, as rows of their table.

A topic has few schemas, and each record carries one of them: what reads its rows is found by the bytes before the
payload, and only the payload is parsed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ottla.pipeline.change_columns import COLUMNS, DELETE, OP, TRUNCATE, TS
from ottla.pipeline.rows.change_types import (
    Read,
    Schema,
    is_in_known_years,
    is_not_sent,
    plain_schema,
    reader,
)
from ottla.pipeline.rows.undecodable import Undecodable

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
    a truncate is a row of nulls."""

    schema: str
    truncates: bool = False

    def open(self) -> Callable[[bytes], dict[str, Any]]:
        """What decodes one record. Raises Undecodable."""
        return _Decoder(StructType.fromJson(json.loads(self.schema)), self.truncates).decode


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
    they cannot be read. `has_key`: whether the record has a key at all."""

    schema: Schema | None
    key: tuple[str, ...]
    has_key: bool


def describe(key: bytes | None, value: bytes | None) -> Described | None:
    """What is known of the table by this record; None if it is no change of a row."""
    try:
        document = None if value is None else _JSON.decode(value.decode())
    except (ValueError, RecursionError):
        return None
    schema = None
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        envelope, document = document["schema"], document["payload"]
        schema = _row_schema(envelope)
        if envelope is not None and schema is None:
            return None
    if not isinstance(document, dict) or document.get("op") not in _ROW_OPS or not isinstance(_row(document), dict):
        return None
    return Described(schema, _key_names(key), key is not None)


def _key_names(key: bytes | None) -> tuple[str, ...]:
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
    def __init__(self, columns: StructType, truncates: bool) -> None:
        self._truncates = truncates
        self._columns = columns
        self._required = [each.name for each in columns.fields if not each.nullable]
        plain = {each.name: plain_schema(each.dataType) for each in columns.fields}
        self._plain = self._rows(plain, None)
        self._known: dict[bytes, _Rows] = {}

    def decode(self, value: bytes) -> dict[str, Any]:
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
