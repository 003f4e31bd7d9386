"""`io.confluent.connect.avro.AvroConverter`: Avro with the schema's id before it.

Connect's types in Avro, as Confluent's converter has them: int8 and int16 are int with `connect.type`, maps with other
keys than strings are arrays of entries, logical types are Avro's own (decimal, date, time-millis, timestamp-millis),
and names of Connect that Avro does not know stand as `connect.name`.
"""

import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException

from ottla.connect.converters.base import MALFORMED
from ottla.connect.converters.logical import FROM_PLAIN, TO_PLAIN, scale_of
from ottla.connect.converters.registered import Decode, Encode, RegisteredConverter
from ottla.connect.errors import BadRecord
from ottla.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type

_PRIMITIVES: Final = {
    Type.INT8: {"type": "int", "connect.type": "int8"},
    Type.INT16: {"type": "int", "connect.type": "int16"},
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_TYPES: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_CONNECT: Final = {avro: name for name, avro in _LOGICAL.items()}
_LOGICAL_TYPES: Final = {"date": Type.INT32, "time-millis": Type.INT32, "timestamp-millis": Type.INT64}
_DEFAULT_NAME: Final = "ConnectDefault"
_NAMESPACE: Final = "io.confluent.connect.avro"
_ENTRY: Final = f"{_NAMESPACE}.MapEntry"
_INTERNAL: Final = "connect.internal.type"
_ODD: Final = re.compile(r"[^A-Za-z0-9_.]")
_PRECISION: Final = 64


class AvroConverter(RegisteredConverter):
    """Settings: schema.registry.url, basic.auth.user.info, auto.register.schemas (true)."""

    kind = "AVRO"

    def _encoder(self, schema: Schema) -> tuple[Any, Encode]:
        written = avro_schema(schema)
        parsed = fastavro.parse_schema(_plain_types(json.loads(json.dumps(written))))

        def encode(topic: str, value: Any) -> bytes:
            out = io.BytesIO()
            try:
                fastavro.schemaless_writer(out, parsed, _to_avro(schema, value))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as wrong:
                raise BadRecord(f"a value for {topic} does not fit its schema: {wrong}") from None
            return out.getvalue()

        return written, encode

    def _decoder(self, document: Any) -> tuple[Schema, Decode]:
        try:
            parsed = fastavro.parse_schema(_plain_types(document))
        except SchemaParseException as wrong:
            raise ValueError(str(wrong)) from wrong
        schema = connect_schema(document, {})
        _check_arrays(document, {})

        def decode(topic: str, payload: bytes) -> Any:
            try:
                return _from_avro(schema, fastavro.schemaless_reader(io.BytesIO(payload), parsed, None))
            except (*MALFORMED, EOFError, StopIteration) as wrong:
                raise BadRecord(f"a record in {topic} is no Avro by its schema: {wrong}") from None

        return schema, decode


def _check_arrays(written: Any, named: dict[str, bool]) -> bool:
    """Whether a value may take no bytes at all. Raises ValueError for an array of such values: a dozen bytes would be
    billions of them."""
    if isinstance(written, list):
        for each in written:
            _check_arrays(each, named)
        return False  # a union has a byte for its branch
    if isinstance(written, str):
        return written == "null" or named.get(written, False)
    kind = written["type"]
    if isinstance(kind, dict | list):
        return _check_arrays(kind, named)
    if kind == "record":
        fields = [_check_arrays(each["type"], named) for each in written["fields"]]
        return _note_names(written, named, all(fields))
    if kind == "fixed":
        return _note_names(written, named, written["size"] == 0)
    if kind == "array" and _check_arrays(written["items"], named):
        raise ValueError("it has an array of values that take no bytes")
    if kind == "map":
        _check_arrays(written["values"], named)
    return bool(kind == "null")


def _note_names(written: Mapping[str, Any], named: dict[str, bool], is_empty: bool) -> bool:
    """A type may be referred to by its name alone, and with its namespace."""
    for name in (written["name"], f"{written.get('namespace', '')}.{written['name']}"):
        named[name] = is_empty
    return is_empty


def avro_schema(schema: Schema, named: dict[str, Schema] | None = None) -> Any:
    """Avro's schema for one of Connect. `named` are the records that have been described before it: Avro describes each
    name once, and refers to it afterwards. Raises BadRecord for two different records of one name."""
    inner = _without_null(schema, {} if named is None else named)
    if not schema.optional:
        return inner
    return ["null", inner]


def _without_null(schema: Schema, named: dict[str, Schema]) -> Any:
    if schema.type is Type.STRUCT:
        return _record(schema, named)
    if schema.type is Type.ARRAY:
        return {"type": "array", "items": avro_schema(schema.element, named)}
    if schema.type is Type.MAP:
        if schema.has_text_keys:
            return {"type": "map", "values": avro_schema(schema.entry[1], named)}
        key, value = (Field(name, each) for name, each in zip(("key", "value"), schema.entry, strict=True))
        entry = Schema(Type.STRUCT, name=_ENTRY, fields=(key, value))
        return {"type": "array", "items": _record(entry, named)}
    plain = _PRIMITIVES[schema.type]
    if schema.name is None:
        return plain
    found: dict[str, Any] = dict(plain) if isinstance(plain, dict) else {"type": plain}
    found["connect.name"] = schema.name
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.name == DECIMAL:
        found.update({"scale": scale_of(schema), "precision": _PRECISION, "logicalType": "decimal"})
    elif schema.name in _LOGICAL:
        found["logicalType"] = _LOGICAL[schema.name]
    return found


def _record(schema: Schema, named: dict[str, Schema]) -> Any:
    """A record, or its name if it has been described. Records without a name are numbered."""
    is_free = schema.name in (None, _ENTRY)
    name, namespace = _record_name(schema.name)
    first, number = f"{namespace}.{name}".lstrip("."), 1
    full = first
    while full in named and not _is_same(named[full], schema):
        if not is_free:
            raise BadRecord(f"Avro describes each name once, and two records {schema.name} have other fields")
        number += 1
        full = f"{first}{number}"
    if full in named:
        return full
    named[full] = schema
    fields = [_avro_field(each, named) for each in schema.fields]
    record = {"type": "record", "name": full.rpartition(".")[2], "namespace": namespace, "fields": fields}
    if schema.name == _ENTRY:
        return {**record, _INTERNAL: "MapEntry"}
    return {**record, **({"connect.name": schema.name} if schema.name else {})}


def _is_same(one: Schema, other: Schema) -> bool:
    return one.as_optional() == other.as_optional()


def _avro_field(each: Field, named: dict[str, Schema]) -> dict[str, Any]:
    written: dict[str, Any] = {"name": _field_name(each.name), "type": avro_schema(each.schema, named)}
    if each.schema.optional:
        written["default"] = None
    return written


def _field_name(name: str) -> str:
    return _ODD.sub("_", name).replace(".", "_")


def _record_name(name: str | None) -> tuple[str, str]:
    namespace, _, last = _ODD.sub("_", name or f"{_NAMESPACE}.{_DEFAULT_NAME}").rpartition(".")
    return last, namespace


def connect_schema(written: Any, named: dict[str, Schema]) -> Schema:
    """Connect's schema for one of Avro; a union is null and one other."""
    if isinstance(written, list):
        others = [each for each in written if each != "null"]
        if len(others) != 1 or len(others) == len(written):
            raise BadRecord("Connect has a schema only for Avro unions of null and one other type")
        return connect_schema(others[0], named).as_optional()
    if isinstance(written, str):
        if written in named:
            return named[written]
        return Schema(_TYPES[written])
    kind = written["type"]
    if isinstance(kind, dict | list):
        return connect_schema(kind, named)
    if kind == "record":
        fields = tuple(Field(each["name"], connect_schema(each["type"], named)) for each in written["fields"])
        full = written.get("connect.name") or ".".join(filter(None, (written.get("namespace"), written["name"])))
        schema = Schema(Type.STRUCT, name=full, fields=fields)
        spelled = ".".join(filter(None, (written.get("namespace"), written["name"])))
        named[written["name"]] = named[spelled] = named[full] = schema
        return schema
    if kind == "enum":
        return Schema(Type.STRING)
    if kind == "array":
        items = written["items"]
        if isinstance(items, dict) and items.get("namespace") == _NAMESPACE and _is_entry(items):
            key, value = (connect_schema(each["type"], named) for each in items["fields"])
            found = Schema(Type.MAP, keys=key, items=value)
            named[f"{_NAMESPACE}.{items['name']}[]"] = found
            return found
        if isinstance(items, str) and f"{items}[]" in named:
            return named[f"{items}[]"]
        return Schema(Type.ARRAY, items=connect_schema(written["items"], named))
    if kind == "map":
        return Schema(Type.MAP, keys=Schema(Type.STRING), items=connect_schema(written["values"], named))
    if kind == "fixed":
        return Schema(Type.BYTES, name=written.get("connect.name"))
    return _scalar(written, kind)


def _is_entry(record: Mapping[str, Any]) -> bool:
    """Whether a record is an entry of a map whose keys are no texts; older converters did not mark them."""
    return record.get(_INTERNAL) == "MapEntry" or record.get("name") == "MapEntry"


def _scalar(written: Mapping[str, Any], kind: str) -> Schema:
    logical = written.get("logicalType")
    if logical == "decimal":
        return Schema(Type.BYTES, name=DECIMAL, version=1, parameters={"scale": str(written.get("scale", 0))})
    if logical in _CONNECT:
        return Schema(_LOGICAL_TYPES[logical], name=_CONNECT[logical], version=1)
    plain = Type(written["connect.type"]) if "connect.type" in written else _TYPES[kind]
    version = written.get("connect.version")
    name, parameters = written.get("connect.name"), written.get("connect.parameters")
    return Schema(plain, name=name, version=version, parameters=parameters)


def _plain_types(written: Any) -> Any:
    """The schema without logical types: they are converted here, for all converters alike."""
    if isinstance(written, list):
        return [_plain_types(each) for each in written]
    if isinstance(written, dict):
        return {name: _plain_types(each) for name, each in written.items() if name != "logicalType"}
    return written


def _to_avro(schema: Schema, value: Any) -> Any:
    return _walked(schema, value, TO_PLAIN, _field_name)


def _from_avro(schema: Schema, value: Any) -> Any:
    return _walked(schema, value, FROM_PLAIN, str)


def _walked(
    schema: Schema, value: Any, logical: Mapping[str, Callable[[Schema, Any], Any]], spelled: Callable[[str], str]
) -> Any:
    """The value with other values of logical types and other names of fields, and with other forms of odd maps."""
    if value is None:
        return None
    if schema.name is not None and schema.name in logical:
        return logical[schema.name](schema, value)

    def inner(schema: Schema, value: Any) -> Any:
        return _walked(schema, value, logical, spelled)

    if schema.type is Type.STRUCT:
        return {spelled(each.name): inner(each.schema, value.get(each.name)) for each in schema.fields}
    if schema.type is Type.ARRAY:
        return [inner(schema.element, each) for each in value]
    if schema.type is Type.MAP:
        keys, items = schema.entry
        if logical is FROM_PLAIN and isinstance(value, list):
            return {inner(keys, each["key"]): inner(items, each["value"]) for each in value}
        if schema.has_text_keys:
            return {name: inner(items, each) for name, each in value.items()}
        return [{"key": inner(keys, key), "value": inner(items, each)} for key, each in value.items()]
    return value
