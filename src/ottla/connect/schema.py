"""Schemas of keys, values and headers: Connect's types in Python.

Values are plain Python: a struct is a dict by field name, an array a list, a map a dict, bytes are bytes. Schemas with
the names of Connect's logical types have the Python type of that name:

    org.apache.kafka.connect.data.Decimal     decimal.Decimal      with the scale of the schema's parameter `scale`
    org.apache.kafka.connect.data.Date        datetime.date
    org.apache.kafka.connect.data.Time        datetime.time        milliseconds
    org.apache.kafka.connect.data.Timestamp   datetime.datetime    aware; milliseconds

Any other name (such as `io.debezium.time.MicroTimestamp`) only describes the meaning of the plain type to readers.

Source: KIP-26; `org.apache.kafka.connect.data`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final


class Type(enum.StrEnum):
    """Connect's types; the values are their names in JSON schemas, but for floats, which are `float` and `double`
    there.
    """

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"


class Shared(dict[str, Any]):
    """A struct that stands in many records as the very same object, and is not changed any more: encoders may remember
    what became of it.
    """

    __slots__ = ()


@dataclass(frozen=True, eq=True)
class Schema:
    """A type and what is known about it.

    name: a logical type, or the name of a struct. parameters: what the logical type needs (`scale`, say).
    fields: of a struct. items: of an array's elements or a map's values; keys: of a map's keys.
    default: in the Python type of the schema; `has_default` because None may be one.

    Make one and keep it: converters remember what they worked out for a schema by its identity.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = field(default=None, hash=False)
    default: object = field(default=None, hash=False)
    has_default: bool = False
    fields: tuple["Field", ...] = ()
    items: "Schema | None" = None
    keys: "Schema | None" = None

    @cached_property
    def by_name(self) -> Mapping[str, "Field"]:
        """The fields of a struct by their names."""
        return {each.name: each for each in self.fields}

    @property
    def element(self) -> "Schema":
        """The schema of an array's elements."""
        assert self.items is not None
        return self.items

    @property
    def entry(self) -> tuple["Schema", "Schema"]:
        """The schemas of a map's keys and values."""
        assert self.keys is not None
        return self.keys, self.element

    @property
    def has_text_keys(self) -> bool:
        """Whether a map's keys are texts, so that formats with objects can write it as one."""
        return self.keys is not None and self.keys.type is Type.STRING and not self.keys.optional

    def has(self, name: str) -> bool:
        """Whether this schema or one inside it has that name."""
        inner = [each.schema for each in self.fields] + [each for each in (self.items, self.keys) if each is not None]
        return self.name == name or any(each.has(name) for each in inner)

    def as_optional(self) -> "Schema":
        """The same, and None is allowed."""
        return self if self.optional else replace(self, optional=True)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    schema: Schema


INT8: Final = Schema(Type.INT8)
INT16: Final = Schema(Type.INT16)
INT32: Final = Schema(Type.INT32)
INT64: Final = Schema(Type.INT64)
FLOAT32: Final = Schema(Type.FLOAT32)
FLOAT64: Final = Schema(Type.FLOAT64)
BOOLEAN: Final = Schema(Type.BOOLEAN)
STRING: Final = Schema(Type.STRING)
BYTES: Final = Schema(Type.BYTES)


def struct(name: str | None, /, *, optional: bool = False, version: int | None = None, **fields: Schema) -> Schema:
    """A struct: `struct("orders.Value", id=INT64, note=STRING.as_optional())`."""
    members = tuple(Field(each, schema) for each, schema in fields.items())
    return Schema(Type.STRUCT, optional=optional, name=name, version=version, fields=members)


def struct_of(name: str | None, fields: Mapping[str, Schema], *, optional: bool = False) -> Schema:
    """A struct whose field names are no Python names."""
    return Schema(Type.STRUCT, optional=optional, name=name, fields=tuple(Field(n, s) for n, s in fields.items()))


def array(items: Schema, *, optional: bool = False) -> Schema:
    """An array of `items`."""
    return Schema(Type.ARRAY, optional=optional, items=items)


def map_of(keys: Schema, items: Schema, *, optional: bool = False) -> Schema:
    """A map from `keys` to `items`."""
    return Schema(Type.MAP, optional=optional, keys=keys, items=items)


def decimal(scale: int, *, optional: bool = False) -> Schema:
    """Connect's Decimal: any number of digits, `scale` of them after the point."""
    return Schema(Type.BYTES, optional=optional, name=DECIMAL, version=1, parameters={"scale": str(scale)})


def date(*, optional: bool = False) -> Schema:
    """Connect's Date: days since 1970-01-01 in an int32."""
    return Schema(Type.INT32, optional=optional, name=DATE, version=1)


def time(*, optional: bool = False) -> Schema:
    """Connect's Time: milliseconds of a day in an int32."""
    return Schema(Type.INT32, optional=optional, name=TIME, version=1)


def timestamp(*, optional: bool = False) -> Schema:
    """Connect's Timestamp: milliseconds since 1970 in an int64."""
    return Schema(Type.INT64, optional=optional, name=TIMESTAMP, version=1)
