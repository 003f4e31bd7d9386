"""Metrics in the format of OpenTelemetry (OTLP, protobuf), as Kafka's clients send them (KIP-714).

The few messages that occur are decoded here: `opentelemetry-proto` would bring the whole runtime of protobuf into
every installation, for five messages that do not change (their field numbers are final). Work is bounded by the
input's length: every step consumes bytes, and messages are nested to a fixed depth.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > Gauge | Sum | Histogram > data point
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

_DOUBLE: Final = Struct("<d")
_FIXED64: Final = Struct("<Q")
_SIGNED64: Final = Struct("<q")
_VARINT, _I64, _LENGTH, _I32 = 0, 1, 2, 5
_GAUGE, _SUM, _HISTOGRAM = 5, 7, 9
_DELTA: Final = 1

Field = tuple[int, int, int | memoryview]
"""Number, wire type, value."""


class MalformedTelemetry(ValueError):
    """The bytes are not what clients send as their metrics."""


class Metric(NamedTuple):
    """One data point of a metric."""

    name: str
    kind: str
    """`gauge`, `sum`, `delta` (a sum since the last push) or `histogram` (its count and sum)."""
    value: float
    attributes: dict[str, str]


def decode_metrics(data: bytes, most: int | None = None) -> list[Metric]:
    """Every data point of a push, or the first `most`, in its order. Raises `MalformedTelemetry`."""
    try:
        return list(islice(_all_points(memoryview(data)), most))
    except (ValueError, IndexError) as error:
        raise MalformedTelemetry(f"these are no metrics in OpenTelemetry's format: {error}") from error


def _all_points(data: memoryview) -> Iterator[Metric]:
    for resource in _messages(data, 1):
        for scope in _messages(resource, 2):
            for metric in _messages(scope, 2):
                yield from _points(metric)


def _points(metric: memoryview) -> Iterator[Metric]:
    name = _text(metric, 1)
    for number, wire_type, body in _fields(metric):
        if wire_type != _LENGTH or number not in (_GAUGE, _SUM, _HISTOGRAM):
            continue
        assert isinstance(body, memoryview)
        kind = {_GAUGE: "gauge", _SUM: "sum", _HISTOGRAM: "histogram"}[number]
        if kind == "sum" and any(field[0] == 2 and field[2] == _DELTA for field in _fields(body)):
            kind = "delta"
        for point in _messages(body, 1):
            yield _point(name, kind, point)


def _point(name: str, kind: str, point: memoryview) -> Metric:
    value = 0.0
    attributes: dict[str, str] = {}
    as_double, as_int, attribute = (5, None, 9) if kind == "histogram" else (4, 6, 7)
    for number, wire_type, content in _fields(point):
        if isinstance(content, memoryview):
            if number == attribute:
                attributes[_text(content, 1)] = _any_value(content)
        elif wire_type == _I64 and number == as_double:
            value = _double(content)
        elif wire_type == _I64 and number == as_int:
            value = _SIGNED64.unpack(_FIXED64.pack(content))[0]
    return Metric(name, kind, value, attributes)


def _double(bits: int) -> float:
    value: float = _DOUBLE.unpack(_FIXED64.pack(bits))[0]
    return value


def _any_value(pair: memoryview) -> str:
    """The value of a key and a value: text, a truth value or a number; empty for anything else."""
    for value in _messages(pair, 2):
        for number, _, content in _fields(value):
            if number == 1 and isinstance(content, memoryview):
                return str(content, "utf-8")
            if number == 2:
                return "true" if content else "false"
            if number == 3 and isinstance(content, int):
                return str(content - (1 << 64) if content >= 1 << 63 else content)
            if number == 4 and isinstance(content, int):
                return str(_double(content))
    return ""


def _text(message: memoryview, wanted: int) -> str:
    return next((str(body, "utf-8") for body in _messages(message, wanted)), "")


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, _, content in _fields(message):
        if number == wanted and isinstance(content, memoryview):
            yield content


def _fields(message: memoryview) -> Iterator[Field]:
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        wire_type = tag & 7
        content: int | memoryview
        if wire_type == _VARINT:
            content, at = _varint(message, at)
        elif wire_type in (_I64, _I32):
            size = 8 if wire_type == _I64 else 4
            content = int.from_bytes(_taken(message, at, size), "little")
            at += size
        elif wire_type == _LENGTH:
            size, at = _varint(message, at)
            content = _taken(message, at, size)
            at += size
        else:
            raise ValueError(f"a field of wire type {wire_type}")
        yield tag >> 3, wire_type, content


def _taken(message: memoryview, at: int, size: int) -> memoryview:
    if size > len(message) - at:
        raise ValueError(f"a field of {size} bytes where {len(message) - at} are left")
    return message[at : at + size]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise ValueError("a number of more than ten bytes")
