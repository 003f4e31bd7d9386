"""Transforms that add, drop, rename, move and hide fields.

Source: `InsertField`, `ReplaceField`, `ExtractField`, `HoistField`, `ValueToKey`, `MaskField`, `Flatten`,
`SetSchemaMetadata` of `org.apache.kafka.connect.transforms`.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from ottla.connect.errors import BadRecord
from ottla.connect.records import Record, SinkRecord
from ottla.connect.schema import INT32, INT64, STRING, Field, Schema, Type, struct_of, timestamp
from ottla.connect.transforms.base import Options, Transform
from ottla.connect.transforms.sides import Remembered, Side, fields_of, with_fields

_TIMESTAMP: Final = timestamp()


def insert_field(options: Options, side_name: str) -> Transform:
    """topic.field, partition.field, offset.field, timestamp.field, static.field with static.value; ! required, ?
    not.
    """
    side = Side(side_name)
    added: list[tuple[str, Schema, Callable[[Record], Any]]] = []
    kinds: list[tuple[str, Schema, Callable[[Record], Any]]] = [
        ("topic.field", STRING, lambda record: record.topic),
        ("partition.field", INT32, lambda record: record.partition),
        ("offset.field", INT64, _offset),
        ("timestamp.field", _TIMESTAMP, lambda record: record.timestamp),
    ]
    static = options.optional("static.value")
    if options.optional("static.field") is not None and static is None:
        raise options.wrong("static.value", "is missing, and static.field asks for it")
    kinds.append(("static.field", STRING, lambda record: static))
    for setting, schema, value in kinds:
        name = options.optional(setting)
        if name:
            required = name.endswith("!")
            added.append((name.rstrip("!?"), schema if required else schema.as_optional(), value))
    if not added:
        raise options.wrong("static.field", "or topic.field, partition.field, offset.field, timestamp.field is needed")
    fields = [Field(name, schema) for name, schema, _ in added]
    extended = Remembered(lambda schema: with_fields(schema, [*schema.fields, *fields]))

    def insert(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        known = fields_of(schema, value, "field insertion")
        new = {name: read(record) for name, _, read in added}
        if schema is not None:
            new = {name: _moment(new[name]) if kind.name == _TIMESTAMP.name else new[name] for name, kind, _ in added}
        return side.put(record, None if schema is None else extended(schema), {**known, **new})

    return insert


def _offset(record: Record) -> int:
    if not isinstance(record, SinkRecord):
        raise BadRecord("only a sink's records have an offset for offset.field")
    return record.offset


def _moment(milliseconds: int | None) -> dt.datetime | None:
    return (
        None if milliseconds is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)
    )


def replace_field(options: Options, side_name: str) -> Transform:
    """include, exclude, renames (old:new)."""
    side = Side(side_name)
    include = set(options.items("include") or options.items("whitelist"))
    exclude = set(options.items("exclude") or options.items("blacklist"))
    renames = _pairs(options, "renames")

    def wanted(name: str) -> bool:
        return name not in exclude and (not include or name in include)

    def smaller(schema: Schema) -> Schema:
        kept = [Field(renames.get(each.name, each.name), each.schema) for each in schema.fields if wanted(each.name)]
        return with_fields(schema, kept)

    changed = Remembered(smaller)

    def rename(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        known = fields_of(schema, value, "field replacement")
        new = {renames.get(name, name): each for name, each in known.items() if wanted(name)}
        return side.put(record, None if schema is None else changed(schema), new)

    return rename


def _pairs(options: Options, name: str) -> dict[str, str]:
    pairs = {}
    for item in options.items(name):
        old, colon, new = item.partition(":")
        if not colon or not old or not new:
            raise options.wrong(name, f"is a list of old:new, and has {item!r}")
        pairs[old] = new
    return pairs


def extract_field(options: Options, side_name: str) -> Transform:
    """field: what becomes of the whole."""
    side, name = Side(side_name), options.text("field")

    def extract(record: Record) -> Any:
        schema, value = side.of(record)
        if schema is None:
            return side.put(
                record, None, None if value is None else fields_of(None, value, "field extraction").get(name)
            )
        if value is not None:
            fields_of(schema, value, "field extraction")
        field = schema.by_name.get(name)
        if field is None:
            raise BadRecord(f"Unknown field: {name}")
        return side.put(record, field.schema, None if value is None else value.get(name))

    return extract


def hoist_field(options: Options, side_name: str) -> Transform:
    """field: the only one of a struct around the whole."""
    side, name = Side(side_name), options.text("field")
    around = Remembered(lambda schema: struct_of(None, {name: schema}))

    def hoist(record: Record) -> Any:
        schema, value = side.of(record)
        return side.put(record, None if schema is None else around(schema), {name: value})

    return hoist


def value_to_key(options: Options, _side: str) -> Transform:
    """fields: of the value, become the key."""
    names = options.items("fields")
    if not names:
        raise options.wrong("fields", "is missing")

    def work_out(schema: Schema) -> Schema:
        missing = next((name for name in names if name not in schema.by_name), None)
        if missing is not None:
            raise BadRecord(f"Field does not exist: {missing}")
        return struct_of(None, {name: schema.by_name[name].schema for name in names})

    key_schema = Remembered(work_out)

    def copy(record: Record) -> Any:
        known = fields_of(record.value_schema, record.value, "copying fields from value to key")
        key = {name: known.get(name) for name in names}
        schema = record.value_schema
        return record.replaced(key_schema=None if schema is None else key_schema(schema), key=key)

    return copy


def mask_field(options: Options, side_name: str) -> Transform:
    """fields: replaced by nothing (0, false, an empty text), or by `replacement`, if that is of their type."""
    side, names, replacement = Side(side_name), set(options.items("fields")), options.optional("replacement")
    if not names:
        raise options.wrong("fields", "is missing")

    def masked(value: Any) -> Any:
        if value is None:
            return None
        if replacement is not None:
            if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
                try:
                    return type(value)(replacement)
                except (ValueError, ArithmeticError):
                    raise BadRecord(f"Unable to convert {replacement} ({type(value).__name__}) to number") from None
            raise BadRecord(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
        for kind, nothing in _NOTHING:
            if isinstance(value, kind):
                return nothing
        raise BadRecord(f"Cannot mask value of type: {type(value).__name__}")

    def mask(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        known = fields_of(schema, value, "masking fields")
        return side.put(record, schema, {n: masked(each) if n in names else each for n, each in known.items()})

    return mask


_NOTHING: Final[tuple[tuple[type, Any], ...]] = (
    (bool, False),
    (int, 0),
    (float, 0.0),
    (Decimal, Decimal(0)),
    (str, ""),
    (dt.datetime, dt.datetime.fromtimestamp(0, dt.UTC)),
    (dt.date, dt.date(1970, 1, 1)),
    (dt.time, dt.time(0)),
    (list, []),
    (dict, {}),
)


def flatten(options: Options, side_name: str) -> Transform:
    """delimiter (.): between the names of structs within structs."""
    side, between = Side(side_name), options.text("delimiter", ".")

    def work_out(schema: Schema) -> Schema:
        return with_fields(schema, list(_flat_schema(schema, "", between, optional=schema.optional)))

    flat = Remembered(work_out)

    def flattened(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        known = fields_of(schema, value, "flattening")
        new: dict[str, Any] = {}
        if schema is None:
            _flat_map(known, "", between, new)
            return side.put(record, None, new)
        _flat_struct(schema, known, "", between, new)
        return side.put(record, flat(schema), new)

    return flattened


def _flat_schema(schema: Schema, prefix: str, between: str, *, optional: bool) -> list[Field]:
    fields: list[Field] = []
    for each in schema.fields:
        name = prefix + each.name
        loose = optional or each.schema.optional
        if each.schema.type is Type.STRUCT:
            fields += _flat_schema(each.schema, name + between, between, optional=loose)
        else:
            fields.append(Field(name, each.schema.as_optional() if loose else each.schema))
    return fields


def _flat_struct(
    schema: Schema, value: Mapping[str, Any] | None, prefix: str, between: str, into: dict[str, Any]
) -> None:
    for each in schema.fields:
        inner = None if value is None else value.get(each.name)
        if each.schema.type is Type.STRUCT:
            _flat_struct(each.schema, inner, prefix + each.name + between, between, into)
        else:
            into[prefix + each.name] = inner


def _flat_map(value: Mapping[str, Any], prefix: str, between: str, into: dict[str, Any]) -> None:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            _flat_map(inner, prefix + name + between, between, into)
        else:
            into[prefix + name] = inner


def set_schema_metadata(options: Options, side_name: str) -> Transform:
    """schema.name, schema.version: of the schema of the whole."""
    side, name, version = Side(side_name), options.optional("schema.name"), options.optional("schema.version")
    if name is None and version is None:
        raise options.wrong("schema.name", "or schema.version is needed")
    if version is not None and not version.isdigit():
        raise options.wrong("schema.version", f"is a number, not {version!r}")

    def work_out(schema: Schema) -> Schema:
        return replace(schema, name=name or schema.name, version=schema.version if version is None else int(version))

    renamed = Remembered(work_out)

    def change(record: Record) -> Any:
        schema, value = side.of(record)
        if schema is None:
            if value is None:
                return record
            raise BadRecord("only records with a schema have one whose name can be set")
        return side.put(record, renamed(schema), value)

    return change
