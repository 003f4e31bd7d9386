"""Schemas as Connect's JsonConverter writes them beside each value."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.converters.java_text import Raw
from ottla.connect.errors import BadRecord
from ottla.connect.schema import Field, Schema, Type

_NAMES: Final = {kind: {Type.FLOAT32: "float", Type.FLOAT64: "double"}.get(kind, str(kind)) for kind in Type}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}


def to_json(schema: Schema, encoder: Callable[[Schema], Callable[[Any], str]]) -> Mapping[str, Any]:
    """A schema as the object that stands in JSON, in Kafka's order of keys; `encoder` writes default values."""
    written: dict[str, Any] = {"type": _NAMES[schema.type]}
    if schema.type is Type.ARRAY:
        written["items"] = to_json(schema.element, encoder)
    elif schema.type is Type.MAP:
        written["keys"], written["values"] = (to_json(each, encoder) for each in schema.entry)
    elif schema.type is Type.STRUCT:
        written["fields"] = [{**to_json(each.schema, encoder), "field": each.name} for each in schema.fields]
    written["optional"] = schema.optional
    known = (("name", schema.name), ("version", schema.version), ("doc", schema.doc))
    written.update({key: value for key, value in known if value is not None})
    if schema.parameters is not None:
        written["parameters"] = dict(schema.parameters)
    if schema.has_default and schema.default is not None:
        written["default"] = Raw(encoder(schema)(schema.default))
    return written


def from_json(written: Any, decoder: Callable[[Schema], Callable[[Any], Any]]) -> Schema | None:
    """The schema an object in JSON describes; None for null. Raises BadRecord."""
    if written is None:
        return None
    if not isinstance(written, Mapping) or not isinstance(written.get("type"), str):
        raise BadRecord("a schema in JSON is an object with a `type`")
    kind = _TYPES.get(written["type"])
    if kind is None:
        raise BadRecord(f"{written['type']!r} is no type of a schema")
    fields: tuple[Field, ...] = ()
    items = keys = None
    if kind is Type.ARRAY:
        items = _inner(written, "items", decoder)
    elif kind is Type.MAP:
        keys, items = _inner(written, "keys", decoder), _inner(written, "values", decoder)
    elif kind is Type.STRUCT:
        if not isinstance(written.get("fields"), list):
            raise BadRecord("a schema of a struct has a list of `fields`")
        fields = tuple(_field(each, decoder) for each in written["fields"])
    parameters = written.get("parameters")
    schema = Schema(
        kind,
        optional=written.get("optional") is True,
        name=written.get("name"),
        version=written.get("version"),
        doc=written.get("doc"),
        parameters=dict(parameters) if isinstance(parameters, Mapping) else None,
        fields=fields,
        items=items,
        keys=keys,
    )
    if "default" not in written:
        return schema
    return Schema(**{**_attributes(schema), "default": decoder(schema)(written["default"]), "has_default": True})


def _attributes(schema: Schema) -> dict[str, Any]:
    return {name: getattr(schema, name) for name in Schema.__dataclass_fields__}


def _inner(written: Mapping[str, Any], key: str, decoder: Callable[[Schema], Callable[[Any], Any]]) -> Schema:
    schema = from_json(written.get(key), decoder)
    if schema is None:
        raise BadRecord(f"a schema of {written['type']} has {key!r}")
    return schema


def _field(written: Any, decoder: Callable[[Schema], Callable[[Any], Any]]) -> Field:
    schema = from_json(written, decoder)
    if schema is None or not isinstance(written.get("field"), str):
        raise BadRecord("a field of a struct has a name, `field`")
    return Field(written["field"], schema)
