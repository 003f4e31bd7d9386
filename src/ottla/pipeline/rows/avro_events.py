"""PURE: change events in Avro as what they would be in JSON with schemas, so that both are read by the same code.

Connectors write both from Connect's schemas and values. Avro's schemas have Connect's names beside Avro's types:

    {"type": "bytes", "logicalType": "decimal", "scale": 2, "connect.name": "org...Decimal", ...}
    {"type": "bytes", "name": "org...Decimal", "parameters": {"scale": "2", ...}}

Values become JSON's: bytes base64, fractions decimals. Names of columns are as Avro has them: a converter replaces
characters that Avro does not allow by `_`.
Source: Confluent's AvroData; Avro 1.12, "Logical Types".
"""

import binascii
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any, Final, NamedTuple

from fastavro import parse_schema, schemaless_reader

from ottla.pipeline.rows.change_types import DECIMAL, Schema
from ottla.registry.undecodable import Undecodable

Convert = Callable[[Any], Any]
"""A value as fastavro reads it, without logical types, to one of JSON."""

_TYPES: Final = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
    "enum": "string",
    "fixed": "bytes",
}
_LOGICAL: Final = {
    "date": "io.debezium.time.Date",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
}
"""What Avro's own types are where no name of Connect stands beside them."""
_LOGICAL_TYPE: Final = "ottla.logicalType"
_ENTRY: Final = "MapEntry"
_ENTRY_MARK: Final = "connect.internal.type"


class Written(NamedTuple):
    """What records of one schema in Avro are: `schema` is Connect's, `read` gives the value of a record whose data
    begin at a place in it, and raises Undecodable."""

    schema: Schema
    read: Callable[[bytes, int], Any]


def written_as(text: str, references: tuple[tuple[str, str], ...] = ()) -> Written:
    """By the schema's JSON, and the name and text of those that it refers to. Raises ValueError."""
    stored, named = _parsed(json.loads(text), [json.loads(referenced) for _, referenced in references])
    schema, convert = connect_schema(stored, named)

    def read(value: bytes, start: int) -> Any:
        data = BytesIO(value)
        data.seek(start)
        try:
            found = convert(schemaless_reader(data, stored, None))
        except Exception as error:  # fastavro raises what the bytes happen to lead to
            raise Undecodable(f"malformed Avro: {type(error).__name__}: {error}") from error
        left = len(value) - data.tell()
        if left:
            raise Undecodable(f"malformed Avro: {left} bytes more than the schema describes")
        return found

    return Written(schema, read)


def _parsed(document: Any, others: list[Any]) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    try:
        for other in others:
            parse_schema(_as_stored(other), named_schemas=named)
        return parse_schema(_as_stored(document), named_schemas=named), named
    except Exception as error:  # several libraries' errors
        raise ValueError(f"this is no Avro schema: {type(error).__name__}: {error}") from error


def _as_stored(schema: Any) -> Any:
    """With logical types by another name: fastavro is to read what is stored, as values are converted here."""
    if isinstance(schema, list):
        return [_as_stored(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            _LOGICAL_TYPE if name == "logicalType" else name: value if name == "default" else _as_stored(value)
            for name, value in schema.items()
        }
    return schema


def connect_schema(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...] = ()) -> tuple[Schema, Convert]:
    """Connect's schema for a parsed one of Avro, and what converts its values. `named` are all types with a name.

    Raises ValueError for unions of several types, and for records that contain themselves.
    """
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise ValueError("it has a union of several types, which Connect's schemas do not have")
        inner, convert = connect_schema(others[0], named, inside)
        return {**inner, "optional": len(others) < len(schema)}, _or_null(convert)
    if isinstance(schema, str):
        return connect_schema(named.get(schema, {"type": schema}), named, inside)
    kind = schema["type"]
    if isinstance(kind, dict | list) or kind in named:
        return connect_schema(kind, named, inside)
    if kind in ("record", "error"):
        return _record(schema, named, inside)
    if kind == "array":
        return _array(schema["items"], named, inside)
    if kind == "map":
        values, convert = connect_schema(schema["values"], named, inside)
        found = {"type": "map", "keys": {"type": "string"}, "values": values}
        return found, lambda value: {key: convert(each) for key, each in value.items()}
    return _plain(schema, kind), _CONVERT.get(kind, _as_it_is)


def _record(schema: Mapping[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> tuple[Schema, Convert]:
    name = schema["name"]
    if name in inside:
        raise ValueError(f"the record {name} contains itself")
    fields, converts = [], {}
    for each in schema["fields"]:
        own, converts[each["name"]] = connect_schema(each["type"], named, (*inside, name))
        fields.append({**own, "field": each["name"]})
    found = {"type": "struct", "fields": fields, "name": schema.get("connect.name", name)}
    return found, lambda value: {field: convert(value[field]) for field, convert in converts.items()}


def _array(items: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> tuple[Schema, Convert]:
    """An array, or a map whose keys are no texts: an array of entries."""
    if _takes_no_bytes(items, named, inside):
        raise ValueError("it has an array of values that take no bytes: a dozen bytes would be billions of them")
    entry = named.get(items, items) if isinstance(items, str) else items
    is_map = isinstance(entry, Mapping) and (
        entry.get(_ENTRY_MARK) == _ENTRY or str(entry.get("name", "")).rpartition(".")[2] == _ENTRY
    )
    if not is_map:
        item, convert = connect_schema(items, named, inside)
        return {"type": "array", "items": item}, lambda value: [convert(each) for each in value]
    (keys, key), (values, of_key) = (connect_schema(each["type"], named, inside) for each in entry["fields"])
    found = {"type": "map", "keys": keys, "values": values}
    return found, lambda value: [[key(each["key"]), of_key(each["value"])] for each in value]


def _takes_no_bytes(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return False  # a union has a byte for its branch
    if isinstance(schema, str):
        return schema == "null" or (schema in named and _takes_no_bytes(named[schema], named, inside))
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        return name not in inside and all(
            _takes_no_bytes(each["type"], named, (*inside, name)) for each in schema["fields"]
        )
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return isinstance(kind, dict | list | str) and kind not in ("array", "map") and _takes_no_bytes(kind, named, inside)


def _plain(schema: Mapping[str, Any], kind: str) -> Schema:
    if kind not in _TYPES:
        raise ValueError(f"it has the type {kind!r}, which Connect's schemas do not have")
    logical = schema.get(_LOGICAL_TYPE)
    found: dict[str, Any] = {"type": schema.get("connect.type", _TYPES[kind])}
    name = schema.get("connect.name", DECIMAL if logical == "decimal" else _LOGICAL.get(logical or ""))
    if name is not None:
        found["name"] = name
    parameters = dict(schema.get("connect.parameters") or {})
    if logical == "decimal":
        parameters.setdefault("scale", str(schema.get("scale", 0)))
        if "connect.name" not in schema:
            parameters.setdefault("connect.decimal.precision", str(schema["precision"]))
    return {**found, "parameters": parameters} if parameters else found


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _as_it_is(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _fraction(value: float) -> Any:
    if math.isfinite(value):
        return Decimal(repr(value))
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_CONVERT: Final[Mapping[str, Convert]] = {
    "bytes": _base64,
    "fixed": _base64,
    "float": _fraction,
    "double": _fraction,
}
