"""PURE: a function of values for each schema, put together once: the walk that encoders and decoders of JSON share.

What is known of a schema is decided when its function is made, not for each value.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from ottla.connect.converters.logical import TO_PLAIN
from ottla.connect.errors import BadRecord
from ottla.connect.schema import Schema, Type

T = TypeVar("T")

_BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
"""Bits of whole numbers, without their sign."""


class BySchema(ABC, Generic[T]):
    """Puts functions together. fill: whether a null becomes its schema's default (`replace.null.with.default`)."""

    def __init__(self, *, fill: bool) -> None:
        self._fill = fill

    def of(self, schema: Schema) -> Callable[[Any], T]:
        """The conversion of values of a schema, None too. The function raises BadRecord for values that do not fit."""
        act, (allowed, null) = self._not_null(schema), self.of_null(schema)
        if not allowed:
            return act  # and refuses None as it refuses everything that does not fit
        return lambda value: null if value is None else act(value)

    def of_null(self, schema: Schema) -> tuple[bool, Any]:
        """Whether a None is allowed, and what it becomes."""
        if schema.has_default and schema.default is not None and self._fill:
            return True, schema.default
        return schema.optional, None

    def _not_null(self, schema: Schema) -> Callable[[Any], T]:
        if schema.name in TO_PLAIN:
            return self._logical(schema)
        if schema.type is Type.STRUCT:
            return self._struct(schema)
        if schema.type is Type.ARRAY:
            return self._array(schema)
        if schema.type is Type.MAP:
            return self._map(schema)
        return self._scalar(schema)

    @abstractmethod
    def _logical(self, schema: Schema) -> Callable[[Any], T]: ...

    @abstractmethod
    def _struct(self, schema: Schema) -> Callable[[Any], T]: ...

    @abstractmethod
    def _array(self, schema: Schema) -> Callable[[Any], T]: ...

    @abstractmethod
    def _map(self, schema: Schema) -> Callable[[Any], T]: ...

    @abstractmethod
    def _scalar(self, schema: Schema) -> Callable[[Any], T]: ...


def range_of(schema: Schema) -> tuple[int, int]:
    """The lowest and the highest whole number of a schema."""
    bits = _BITS[schema.type]
    return -(1 << bits), (1 << bits) - 1


def refused(schema: Schema, value: Any) -> BadRecord:
    """Why a value is not written or read by a schema."""
    what = schema.name or schema.type
    if value is None:
        return BadRecord(f"null for a {what} that is required and has no default")
    if isinstance(value, int | float | Decimal) and schema.type is not Type.STRUCT:
        return BadRecord(f"{value!r} is no {what}")
    return BadRecord(f"a {what} was expected, not {type(value).__name__}")
