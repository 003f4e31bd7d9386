"""The dearest requests that the bounds of `ottla.protocol.limits` allow, made of the declarations of their classes.

Of every array of a request there is one variant that fills it, with what the broker knows and with what it does not,
and of every array that may be null one that asks for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.protocol.api import ApiKey, request_class
from ottla.protocol.limits import BYTES_PER_ELEMENT_SHIFT, MAX_BYTES, max_elements
from ottla.protocol.primitives import Primitive
from ottla.protocol.schema import Array, Message, Struct, Type, fields_of

UNKNOWN_NAME: Final = "unknown-{}"
EMPTY: Final[Mapping[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "uuid": UUID(int=0),
    "string": "",
    "bytes": b"",
    "records": b"",
}

Value = Callable[[int, bool], Any]
"""The value of a field, by the number of the element that it is in and whether the broker shall know it."""


class DearRequest(NamedTuple):
    what: str
    message: Message
    version: int


class Maker:
    """Fills the arrays of requests; `values` are by name of field, or by API and name."""

    def __init__(self, values: Mapping[str | tuple[ApiKey, str], Value]) -> None:
        self._values = values

    def requests(self, api_key: ApiKey, version: int) -> list[Callable[[], DearRequest]]:
        """Each is made when it is called: that is dear, too."""
        cls = request_class(api_key)
        ways: list[Callable[[], DearRequest]] = [partial(self._filled, api_key, version, (), True)]
        ways += [
            partial(self._filled, api_key, version, path, known)
            for path in _arrays(cls, version)
            for known in (True, False)
        ]
        ways += [
            partial(self._with_null, api_key, version, field.name)
            for field in fields_of(cls)
            if isinstance(field.type, Array) and field.in_version(version) and field.nullable_in(version)
        ]
        return ways

    def _filled(self, api_key: ApiKey, version: int, path: tuple[str, ...], known: bool) -> DearRequest:
        message = self._fill(request_class(api_key), version, api_key, path, known)
        return DearRequest(f"{api_key.name} {'.'.join(path)} {'known' if known else 'unknown'}", message, version)

    def _with_null(self, api_key: ApiKey, version: int, name: str) -> DearRequest:
        message = self._fill(request_class(api_key), version, api_key, (), known=True)
        setattr(message, name, None)
        return DearRequest(f"{api_key.name} {name} null", message, version)

    def _fill(self, cls: type[Message], version: int, api_key: ApiKey, path: tuple[str, ...], known: bool) -> Any:
        limit = max_elements(cls)
        assert limit is not None
        count = min(limit, 25_000)
        while True:
            message = self._struct(cls, version, api_key, path, count, 0, known)
            elements, size = _elements(message, version), _size(message)
            if elements <= limit and size < MAX_BYTES - 1000:
                return message
            count = int(count * min(limit / elements, (MAX_BYTES - 2000) / size, 0.999))

    def _struct(
        self, cls: type[Struct], version: int, api_key: ApiKey, path: tuple[str, ...], count: int, at: int, known: bool
    ) -> Any:
        values = {}
        for field in fields_of(cls):
            if not field.in_version(version):
                values[field.name] = field.make_default()
                continue
            below = path[1:] if path and path[0] == field.name else ()
            is_meant = bool(path) and path[0] == field.name
            chosen = self._values.get((api_key, field.name)) or self._values.get(field.name)
            kind: Type = field.type
            if isinstance(kind, Array):
                number = count if is_meant and not below else 1
                if chosen is not None and isinstance(chosen(0, known), list | None):
                    values[field.name] = chosen(at, known)
                elif not is_meant and field.nullable_in(version):
                    values[field.name] = None if field.tag is None else []
                elif isinstance(kind.element, type):
                    values[field.name] = [
                        self._struct(kind.element, version, api_key, below, count, at + index, known)
                        for index in range(number)
                    ]
                else:
                    if kind.element.size == 1:  # type: ignore[union-attr]
                        number <<= BYTES_PER_ELEMENT_SHIFT if number > 1 else 0
                    values[field.name] = [
                        _fitting(kind.element, chosen(at + index, known), at + index)
                        if chosen
                        else _empty(kind.element)
                        for index in range(number)
                    ]
            elif chosen is not None:
                values[field.name] = chosen(at, known)
            elif isinstance(kind, type):
                is_left_out = not is_meant and (field.nullable_in(version) or field.optional)
                values[field.name] = (
                    None if is_left_out else self._struct(kind, version, api_key, below, count, at, known)
                )
            elif field.has_default:
                values[field.name] = field.make_default()
            else:
                values[field.name] = _empty(kind)
        return cls(**values)


def _arrays(cls: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    """The way to each array in a structure."""
    for field in fields_of(cls):
        if not field.in_version(version):
            continue
        kind: Type = field.type
        if isinstance(kind, Array):
            yield (field.name,)
            kind = kind.element
        if isinstance(kind, type):
            for rest in _arrays(kind, version):
                yield (field.name, *rest)


def _fitting(kind: Type, value: Any, at: int) -> Any:
    """A streams group's topology has names in one field of a name and their places, as numbers, in another."""
    assert isinstance(kind, Primitive)
    return at & 0x7FFF if isinstance(value, str) and kind.name.startswith("int") else value


def _empty(kind: Type) -> Any:
    assert isinstance(kind, Primitive)
    return EMPTY.get(kind.name, 0)


def _elements(value: Any, version: int) -> int:
    if isinstance(value, list):
        if value and not isinstance(value[0], Struct):
            return len(value)
        return len(value) * (1 + _elements(value[0], version)) if value else 0
    if isinstance(value, Struct):
        return sum(_elements(getattr(value, field.name), version) for field in fields_of(type(value)))
    return 0


def _size(value: Any) -> int:
    if isinstance(value, list):
        return (_size(value[-1]) + 4) * len(value) + 4 if value else 4
    if isinstance(value, Struct):
        return sum(_size(getattr(value, field.name)) for field in fields_of(type(value))) + 1
    return len(value) + 4 if isinstance(value, str | bytes) else 16 if isinstance(value, UUID) else 8
