"""Avro values by their schema, as values of JSON, at a cost that their bytes bound.

    timestamp-*, local-timestamp-*, date, time-*   ISO 8601, in UTC        decimal   a number, or its digits as text
    bytes, fixed, duration                         base64                  enum      its symbol

Writers of records decide about schemas and values, and may mean harm. fastavro's reader in C recurses without a
limit, and reads an array of a billion values that take no bytes; so schemas are measured first:

    a schema that contains itself       is read by fastavro's reader in Python, whose recursion ends with an error
    values without bytes in an array    are refused, as are values that could become more objects than MOST_OBJECTS

Source: Avro 1.12, "Binary Encoding" and "Logical Types".
"""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
from fastavro import _read_py, parse_schema, schemaless_reader

from ottla.registry.client import Found
from ottla.registry.undecodable import Undecodable

Read = Callable[[bytes, int], Any]
"""The value that begins at a place in the bytes, and ends with them. Raises Undecodable."""

MOST_OBJECTS: Final = 400_000
"""Objects that a value may become, counted before it is read: what its schema allows with so many bytes. A reader in C
holds up all other threads."""
DEEPEST_JSON: Final = 200
DEEPEST: Final = 100
MOST_DIGITS_BYTES: Final = 128
"""Bytes of a decimal. Python takes quadratic time for longer ones; they are given as base64."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT: Final = 15
"""Digits that a float always keeps."""
_CONTAINER: Final = 4
"""Objects that a record, array or map counts as, beside its parts."""
_SIZES: Final = {"null": 0, "float": 4, "double": 8}
_OURS: Final = "ottla-"


def reader(found: Found) -> Read:
    """What reads values of a schema. Raises ValueError for one that is none, or that no value could be read by."""
    named: dict[str, Any] = {}
    try:
        for _, referenced in found.references:
            parse_schema(_marked(_document(referenced)), named_schemas=named)
        parsed = parse_schema(_marked(_document(found.text)), named_schemas=named)
    except Exception as error:  # several libraries' errors
        raise ValueError(f"this is no Avro schema: {type(error).__name__}: {error}") from error
    return _Reader(parsed, _measured(parsed, named)).read


def reader_in(parsed: Any, named: dict[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """fastavro's function that reads values of a parsed schema: the one in C, or for a schema that contains itself the
    one in Python, since the former ends the process where a value is nested deeply. Raises ValueError."""
    found: Any = _read_py.schemaless_reader if _measured(parsed, named).contains_itself else schemaless_reader
    return found  # type: ignore[no-any-return]


class _Reader:
    def __init__(self, parsed: Any, measures: "_Measures") -> None:
        self._parsed = parsed
        self._measures = measures
        self._read: Any = _read_py.schemaless_reader if measures.contains_itself else schemaless_reader

    def read(self, value: bytes, start: int) -> Any:
        """The value. Raises Undecodable."""
        measures = self._measures
        if measures.objects(len(value) - start) > MOST_OBJECTS:
            raise Undecodable(
                f"its {len(value)} bytes may be more than {MOST_OBJECTS:,} values by its schema, too many to read here"
            )
        data = BytesIO(value)
        data.seek(start)
        try:
            found = self._read(data, self._parsed, None)
        except Exception as error:  # fastavro raises what the bytes happen to lead to
            raise Undecodable(f"malformed Avro: {type(error).__name__}: {str(error)[:200]}") from error
        left = len(value) - data.tell()
        if left:
            raise Undecodable(f"malformed Avro: {left} bytes more than the schema describes")
        return found


# -- logical types ---------------------------------------------------------------------------------------------------


def _document(text: str) -> Any:
    """JSON that is nested as deeply as fastavro's parser can take. Raises ValueError."""
    document = json.loads(text)
    level = [document]
    for _ in range(DEEPEST_JSON):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return document
    raise ValueError("it is too deeply nested")


def _inside(each: Any) -> Iterator[Any]:
    if isinstance(each, dict):
        yield from each.values()
    elif isinstance(each, list):
        yield from each


def _marked(schema: Any) -> Any:
    """With names of logical types for which this module has readers; others are read as they are stored."""
    if isinstance(schema, list):
        return [_marked(branch) for branch in schema]
    if schema == "bytes":
        return {"type": "bytes", "logicalType": f"{_OURS}bytes"}
    if not isinstance(schema, dict):
        return schema
    marked = {
        name: _marked(value) if name in ("type", "items", "values") else value
        for name, value in schema.items()
        if name not in ("logicalType", "fields")
    }
    kind = schema.get("type")
    if isinstance(schema.get("fields"), list):
        marked["fields"] = [
            {**each, "type": _marked(each.get("type"))} if isinstance(each, dict) else each for each in schema["fields"]
        ]
    if kind in ("bytes", "fixed"):
        marked["type"] = kind
    if isinstance(kind, str):
        mark = f"{_OURS}{schema.get('logicalType', 'bytes')}"
        if f"{kind}-{mark}" in _READERS:
            marked["logicalType"] = mark
        elif kind in ("bytes", "fixed"):
            marked["logicalType"] = f"{_OURS}bytes"
    return marked


def _text_of_bytes(data: bytes, *_: Any) -> str:
    return base64.b64encode(data).decode()


def _decimal(data: bytes, schema: Any, *_: Any) -> Any:
    scale = schema.get("scale", 0)
    if len(data) > MOST_DIGITS_BYTES or not isinstance(scale, int) or not 0 <= scale <= 1000:
        return _text_of_bytes(data)
    unscaled = int.from_bytes(data, "big", signed=True)
    if not scale:
        return unscaled
    if abs(unscaled) < 10**_EXACT:
        return float(Decimal(unscaled).scaleb(-scale))
    return format(Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)), "f")


def _moment(per_second: int, digits: int) -> Callable[..., Any]:
    def read(count: int, *_: Any) -> Any:
        seconds, rest = divmod(count, per_second)
        try:
            text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
        except OverflowError:
            return count
        return f"{text.zfill(19)}.{rest:0{digits}d}Z"

    return read


def _date(days: int, *_: Any) -> Any:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return days


def _time(per_second: int, digits: int) -> Callable[..., Any]:
    def read(count: int, *_: Any) -> Any:
        seconds, rest = divmod(count, per_second)
        if not 0 <= seconds < 24 * 3600:
            return count
        text = time_of_day(seconds // 3600, seconds // 60 % 60, seconds % 60).isoformat()
        return f"{text}.{rest:0{digits}d}"

    return read


_READERS: Final[dict[str, Callable[..., Any]]] = {
    f"bytes-{_OURS}bytes": _text_of_bytes,
    f"fixed-{_OURS}bytes": _text_of_bytes,
    f"bytes-{_OURS}decimal": _decimal,
    f"fixed-{_OURS}decimal": _decimal,
    f"int-{_OURS}date": _date,
    f"int-{_OURS}time-millis": _time(1_000, 3),
    f"long-{_OURS}time-micros": _time(1_000_000, 6),
    **{
        f"long-{_OURS}{local}timestamp-{unit}": _moment(10**digits, digits)
        for local in ("", "local-")
        for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
    },
}
_TABLES: Final = (fastavro.read.LOGICAL_READERS, _read_py.LOGICAL_READERS)  # type: ignore[attr-defined]
for _table in _TABLES:
    _table.update(_READERS)  # under names of our own, which no other schema has


# -- what a value may cost -------------------------------------------------------------------------------------------


class _Measures(NamedTuple):
    """Bounds of what values of a schema become."""

    bounds: tuple[tuple[int, float], ...]
    """Pairs of objects that a value has in any case, and more that each of its bytes may bring; all of them hold."""
    contains_itself: bool

    def objects(self, size: int) -> float:
        """Objects, at most, of a value of so many bytes."""
        return min(first + size * per_byte for first, per_byte in self.bounds)


def _measured(parsed: Any, named: dict[str, Any]) -> _Measures:
    """Raises ValueError for a schema that no value could be read by."""
    rulers = _Ruler(named, counts_unions=False), _Ruler(named, counts_unions=True)
    measures = _Measures(
        tuple((ruler.measure(parsed, ())[0], ruler.per_byte) for ruler in rulers), rulers[0].contains_itself
    )
    if measures.objects(0) > MOST_OBJECTS:
        raise ValueError("each of its values has too many parts")
    return measures


class _Ruler:
    """Measures a schema part by part. Elements, and records in records of their kind, are measured on their own: each
    takes a byte at least, so bytes bound how many there are. What a union may have is measured either so, too, or as a
    part of the whole: the former is better where optional records have optional records, the latter for long texts."""

    def __init__(self, named: dict[str, Any], *, counts_unions: bool) -> None:
        self._named = named
        self._counts_unions = counts_unions
        self._known: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()
        self._within_themselves: set[str] = set()
        self.per_byte = 0.0

    @property
    def contains_itself(self) -> bool:
        """Whether a record may contain one of its own kind."""
        return bool(self._within_themselves)

    def measure(self, schema: Any, chain: tuple[str, ...], depth: int = 0) -> tuple[int, int]:
        """Objects at most, and bytes at least, of a value. `chain`: the records that certainly contain it."""
        if depth > DEEPEST:
            raise ValueError("it is too deeply nested")
        if isinstance(schema, list):
            if not self._counts_unions:
                for branch in schema:
                    self._part(branch, depth + 1, before=1)
                return 0, 1
            branches = [self.measure(branch, (), depth + 1) for branch in schema]
            return max((objects for objects, _ in branches), default=0), 1
        if isinstance(schema, str):
            if schema not in self._named:
                return 1, _SIZES.get(schema, 1)
            return self._record(schema, self._named[schema], chain, depth)
        kind = schema["type"]
        if kind == "record" or kind == "error":
            return self._record(schema["name"], schema, chain, depth)
        if kind == "array":
            self._part(schema["items"], depth + 1, before=0)
            return _CONTAINER, 1
        if kind == "map":
            self._part(schema["values"], depth + 1, before=1)
            return _CONTAINER, 1
        if kind == "fixed":
            return _CONTAINER, schema["size"]
        if isinstance(kind, (dict, list)) or kind in self._named:
            return self.measure(kind, chain, depth + 1)
        return (_CONTAINER if "logicalType" in schema else 1), _SIZES.get(kind, 1)

    def _part(self, schema: Any, depth: int, before: int) -> None:
        objects, size = self.measure(schema, (), depth)
        if not size + before:
            raise ValueError("it has an array of values that take no bytes")
        self.per_byte = max(self.per_byte, (objects + 1) / (size + before))

    def _record(self, name: str, schema: Any, chain: tuple[str, ...], depth: int) -> tuple[int, int]:
        if schema["type"] not in ("record", "error"):  # a fixed, or an enum, by its name
            return (_CONTAINER, schema["size"]) if schema["type"] == "fixed" else (1, 1)
        if name in chain:
            raise ValueError(f"{name} contains itself without end")
        if name in self._known:
            return self._known[name]
        if name in self._open:
            self._within_themselves.add(name)
            return 0, 1
        self._open.add(name)
        parts = [self.measure(each["type"], (*chain, name), depth + 1) for each in schema["fields"]]
        self._open.discard(name)
        objects = _CONTAINER + sum(1 + each for each, _ in parts)
        size = sum(each for _, each in parts)
        if name in self._within_themselves:
            self.per_byte = max(self.per_byte, objects / max(size, 1))
        self._known[name] = objects, size
        return objects, size
