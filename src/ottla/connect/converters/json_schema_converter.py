"""`io.confluent.connect.json.JsonSchemaConverter`: JSON with the id of its JSON Schema before it.

Connect's types stand in the schema as `connect.type`, its names as `title`, as Confluent's converter has them; an
optional value is `oneOf` of null and the type.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema

from ottla.connect.converters.base import usable_schema
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.json_decoders import JsonDecoders
from ottla.connect.converters.registered import Decode, Encode, RegisteredConverter
from ottla.connect.errors import BadRecord
from ottla.connect.patterns import compiled
from ottla.connect.schema import DECIMAL, Field, Schema, Type

_NUMBERS: Final = {
    Type.INT8: "integer",
    Type.INT16: "integer",
    Type.INT32: "integer",
    Type.INT64: "integer",
    Type.FLOAT32: "number",
    Type.FLOAT64: "number",
}
_PLAIN: Final = {"integer": Type.INT64, "number": Type.FLOAT64, "boolean": Type.BOOLEAN, "string": Type.STRING}


_pattern = functools.lru_cache(1000)(compiled)


def _check_pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and _pattern(pattern).search(value) is None:
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any) -> Iterator[Any]:
    for pattern, schema in patterns.items():
        for name, each in value.items() if validator.is_type(value, "object") else ():
            if _pattern(pattern).search(name) is not None:
                yield from validator.descend(each, schema, path=name, schema_path=pattern)


def _check_other_properties(validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    patterns = [_pattern(each) for each in schema.get("patternProperties", ())]
    if patterns and validator.is_type(value, "object"):
        value = {name: each for name, each in value.items() if not any(found.search(name) for found in patterns)}
    plain = {name: each for name, each in schema.items() if name != "patternProperties"}
    yield from jsonschema.Draft7Validator.VALIDATORS["additionalProperties"](validator, allowed, value, plain)


_Validator: Final = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft7Validator,
    {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": _check_other_properties,
    },
)
"""With expressions whose time is bounded: the author of a schema and the writer of a record may mean harm."""


class JsonSchemaConverter(RegisteredConverter):
    """Settings: schema.registry.url, basic.auth.user.info, auto.register.schemas (true), json.fail.invalid.schema
    (false).
    """

    kind = "JSON"

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        super().__init__(settings, is_key=is_key)
        self._check = settings.get("json.fail.invalid.schema", "false").lower() == "true"
        decimals = settings.get("decimal.format", "BASE64")
        self._plain = JsonConverter({"schemas.enable": "false", "decimal.format": decimals})

    def _encoder(self, schema: Schema) -> tuple[Any, Encode]:
        def encode(topic: str, value: Any) -> bytes:
            payload = self._plain.to_bytes(topic, schema, value)
            assert payload is not None
            return payload

        return json_schema(schema), encode

    def _decoder(self, document: Any) -> tuple[Schema, Decode]:
        schema = connect_schema(document)
        read, validator = JsonDecoders(fill=True).of(schema), _Validator(document)

        def decode(topic: str, payload: bytes) -> Any:
            try:
                value = json.loads(payload)
            except (ValueError, RecursionError) as wrong:
                raise BadRecord(f"a record in {topic} is no JSON: {wrong}") from None
            if self._check:
                with usable_schema(topic):
                    problem = next(iter(validator.iter_errors(value)), None)
                if problem is not None:
                    raise BadRecord(f"a record in {topic} does not follow its schema: {problem.message}")
            return read(value)

        return schema, decode


def json_schema(schema: Schema) -> dict[str, Any]:
    """JSON Schema for a schema of Connect."""
    written = _without_null(schema)
    if schema.name:
        written["title"] = schema.name
    if schema.version is not None:
        written["connect.version"] = schema.version
    if schema.parameters:
        written["connect.parameters"] = dict(schema.parameters)
    return {"oneOf": [{"type": "null"}, written]} if schema.optional else written


def _without_null(schema: Schema) -> dict[str, Any]:
    if schema.type is Type.STRUCT:
        properties = {
            each.name: {**json_schema(each.schema), "connect.index": index} for index, each in enumerate(schema.fields)
        }
        return {"type": "object", "properties": properties}
    if schema.type is Type.ARRAY:
        return {"type": "array", "items": json_schema(schema.element)}
    if schema.type is Type.MAP:
        keys, items = map(json_schema, schema.entry)
        if schema.has_text_keys:
            return {"type": "object", "connect.type": "map", "additionalProperties": items}
        pair = {"type": "array", "items": [keys, items]}
        return {"type": "array", "connect.type": "map", "items": pair}
    if schema.type is Type.BYTES:
        kind = ["number", "string"] if schema.name == DECIMAL else "string"
        return {"type": kind, "connect.type": "bytes"}
    if schema.type in _NUMBERS:
        return {"type": _NUMBERS[schema.type], "connect.type": str(schema.type)}
    return {"type": str(schema.type)}


def connect_schema(written: Any) -> Schema:
    """Connect's schema for a JSON Schema. Raises BadRecord for one that has none."""
    if not isinstance(written, Mapping):
        raise BadRecord("a schema is an object")
    choices = written.get("oneOf") or written.get("anyOf")
    if isinstance(choices, list):
        others = [each for each in choices if each != {"type": "null"}]
        if len(others) != 1:
            raise BadRecord("Connect has a schema only for JSON Schema choices of null and one other type")
        inner = connect_schema(others[0])
        return inner.as_optional() if len(others) < len(choices) else inner
    kind, connect_type = written.get("type"), written.get("connect.type")
    optional = False
    if isinstance(kind, list) and connect_type != "bytes":
        optional = "null" in kind
        kind = next((each for each in kind if each != "null"), None)
    schema = _by_type(written, kind, connect_type)
    return Schema(
        schema.type,
        optional=optional,
        parameters=written.get("connect.parameters"),
        fields=schema.fields,
        items=schema.items,
        keys=schema.keys,
        name=written.get("title"),
        version=written.get("connect.version"),
    )


def _by_type(written: Mapping[str, Any], kind: Any, connect_type: Any) -> Schema:
    if connect_type == "map":
        if kind == "array":
            keys, items = written["items"]["items"]
            return Schema(Type.MAP, keys=connect_schema(keys), items=connect_schema(items))
        return Schema(Type.MAP, keys=Schema(Type.STRING), items=connect_schema(written["additionalProperties"]))
    if kind == "object":
        properties = written.get("properties") or {}
        required = set(written.get("required") or ())
        ordered = sorted(properties.items(), key=lambda item: item[1].get("connect.index", 0))
        strict = any("connect.index" in each for each in properties.values())
        fields = []
        for name, each in ordered:
            inner = connect_schema(each)
            fields.append(Field(name, inner if strict or name in required else inner.as_optional()))
        return Schema(Type.STRUCT, fields=tuple(fields))
    if kind == "array":
        return Schema(Type.ARRAY, items=connect_schema(written.get("items")))
    if connect_type is not None:
        return Schema(Type(connect_type))
    if kind not in _PLAIN:
        raise BadRecord(f"the type {kind!r} of JSON Schema has no schema in Connect")
    return Schema(_PLAIN[kind])
