"""The side of a record that a transform works on, and schemas worked out once for each schema that comes by."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ottla.connect.errors import BadRecord
from ottla.connect.records import Record
from ottla.connect.schema import Field, Schema, Type

_REMEMBERED: Final = 64


class Side(NamedTuple):
    """`Key` or `Value`."""

    name: str

    def of(self, record: Record) -> tuple[Schema | None, Any]:
        """Schema and value."""
        if self.name == "Key":
            return record.key_schema, record.key
        return record.value_schema, record.value

    def put(self, record: Any, schema: Schema | None, value: Any) -> Any:
        """The record with another one."""
        if self.name == "Key":
            return record.replaced(key_schema=schema, key=value)
        return record.replaced(value_schema=schema, value=value)


class Remembered:
    """What a function made of a schema, kept by the schema's identity."""

    def __init__(self, work_out: Callable[[Schema], Schema]) -> None:
        self._work_out = work_out
        self._known: dict[int, tuple[Schema, Schema]] = {}

    def __call__(self, schema: Schema) -> Schema:
        """The other schema."""
        known = self._known.get(id(schema))
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[id(schema)] = (schema, self._work_out(schema))
        return known[1]


def fields_of(schema: Schema | None, value: Any, purpose: str) -> Mapping[str, Any]:
    """A value that has fields. Raises BadRecord for one that has none."""
    if schema is not None and schema.type is not Type.STRUCT:
        raise BadRecord(f"only structs have fields for {purpose}, not a {schema.type}")
    if not isinstance(value, Mapping):
        raise BadRecord(f"only structs and maps have fields for {purpose}, not {type(value).__name__}")
    return value


def with_fields(schema: Schema, fields: list[Field] | tuple[Field, ...]) -> Schema:
    """The struct with other fields."""
    return replace(schema, fields=tuple(fields))
