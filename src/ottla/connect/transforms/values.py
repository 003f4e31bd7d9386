"""Transforms of values: `Cast` and `TimestampConverter` of `org.apache.kafka.connect.transforms`."""

import base64
import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.connect.converters.java_text import double
from ottla.connect.errors import BadRecord
from ottla.connect.records import Record
from ottla.connect.schema import INT64, STRING, Field, Schema, Type, date, time, timestamp
from ottla.connect.transforms.base import Options, Transform
from ottla.connect.transforms.java_dates import JavaDates
from ottla.connect.transforms.sides import Remembered, Side, fields_of, with_fields

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_CASTS: Final = {str(kind): kind for kind in (*_BITS, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING)}


def cast(options: Options, side_name: str) -> Transform:
    """spec: `field:type,...`, or one type for the whole."""
    side = Side(side_name)
    whole, fields = _spec(options)

    def work_out(schema: Schema) -> Schema:
        if whole is not None:
            return _cast_schema(schema, whole)
        changed = [
            Field(each.name, _cast_schema(each.schema, fields[each.name])) if each.name in fields else each
            for each in schema.fields
        ]
        return with_fields(schema, changed)

    changed_schema = Remembered(work_out)

    def change(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        new_schema = None if schema is None else changed_schema(schema)
        if whole is not None:
            return side.put(record, new_schema, _cast_value(value, whole))
        known = fields_of(schema, value, "type casting")
        new = {name: _cast_value(each, fields[name]) if name in fields else each for name, each in known.items()}
        return side.put(record, new_schema, new)

    return change


def _spec(options: Options) -> tuple[Type | None, Mapping[str, Type]]:
    fields: dict[str, Type] = {}
    whole: Type | None = None
    for item in options.items("spec"):
        name, colon, kind_name = item.rpartition(":")
        kind = _CASTS.get(kind_name.strip().lower())
        if kind is None:
            raise options.wrong("spec", f"has the type {kind_name!r}; it is one of {', '.join(_CASTS)}")
        if colon:
            fields[name.strip()] = kind
        else:
            whole = kind
    if (whole is None) == (not fields):
        raise options.wrong("spec", "is a list of field:type, or one type for the whole")
    return whole, fields


def _cast_schema(schema: Schema, kind: Type) -> Schema:
    default = _cast_value(schema.default, kind) if schema.has_default else None
    return Schema(kind, optional=schema.optional, doc=schema.doc, default=default, has_default=schema.has_default)


def _cast_value(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    try:
        if kind is Type.STRING:
            return _text(value)
        if kind is Type.BOOLEAN:
            return value.strip().lower() == "true" if isinstance(value, str) else bool(value)
        number = _plain_number(value)
        if kind in (Type.FLOAT32, Type.FLOAT64):
            return float(number)
        bits = _BITS[kind]
        if isinstance(value, str) and not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError
        return (int(number) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)  # as Java narrows
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        raise BadRecord(f"Unexpected value in Cast transformation: {value!r} is no {kind}") from None


def _plain_number(value: Any) -> Any:
    if isinstance(value, str):
        return Decimal(value) if "." in value or "e" in value.lower() else int(value)
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, bool | int | float | Decimal):
        return value
    raise TypeError


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double(value).strip('"')
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return JavaDates("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").format(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat() if isinstance(value, dt.date) else f"{value:%H:%M:%S}.{value.microsecond // 1000:03d}Z"
    if isinstance(value, int):
        return str(value)
    raise TypeError


_UNITS: Final = {"seconds": 10**6, "milliseconds": 10**3, "microseconds": 1, "nanoseconds": 1}
_TARGETS: Final = ("string", "unix", "Date", "Time", "Timestamp")


def timestamp_converter(options: Options, side_name: str) -> Transform:
    """target.type (string, unix, Date, Time, Timestamp), field (none: the whole), format, unix.precision."""
    side, name, target = Side(side_name), options.text("field", ""), options.text("target.type")
    if target not in _TARGETS:
        raise options.wrong("target.type", f"is one of {', '.join(_TARGETS)}, not {target!r}")
    unit = options.text("unix.precision", "milliseconds")
    if unit not in _UNITS:
        raise options.wrong("unix.precision", f"is one of {', '.join(_UNITS)}, not {unit!r}")
    pattern = options.text("format", "")
    if target == "string" and not pattern:
        raise options.wrong("format", "is needed for text")
    try:
        dates = JavaDates(pattern) if pattern else None
    except ValueError as wrong:
        raise options.wrong("format", f"cannot be used: {wrong}") from None
    target_schema = {"string": STRING, "unix": INT64, "Date": date(), "Time": time(), "Timestamp": timestamp()}[target]

    def work_out(schema: Schema) -> Schema:
        if not name:
            return replace(target_schema, optional=schema.optional)
        changed = [
            Field(each.name, replace(target_schema, optional=each.schema.optional)) if each.name == name else each
            for each in schema.fields
        ]
        return with_fields(schema, changed)

    changed_schema = Remembered(work_out)

    def convert(value: Any) -> Any:
        return None if value is None else _from_moment(_to_moment(value, dates, unit), target, dates, unit)

    def change(record: Record) -> Any:
        schema, value = side.of(record)
        if value is None:
            return record
        new_schema = None if schema is None else changed_schema(schema)
        if not name:
            return side.put(record, new_schema, convert(value))
        known = fields_of(schema, value, "timestamp conversion")
        if name not in known:
            return record if schema is None else side.put(record, new_schema, value)
        return side.put(record, new_schema, {**known, name: convert(known[name])})

    return change


def _to_moment(value: Any, dates: JavaDates | None, unit: str) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, dt.time):
        return dt.datetime.combine(_EPOCH.date(), value, tzinfo=dt.UTC)
    if isinstance(value, int) and not isinstance(value, bool):
        microseconds = value // 1000 if unit == "nanoseconds" else value * _UNITS[unit]
        return _EPOCH + dt.timedelta(microseconds=microseconds)
    if isinstance(value, str):
        if dates is None:
            raise BadRecord("text is no time without the setting `format`")
        try:
            return dates.parse(value)
        except ValueError as wrong:
            raise BadRecord(f"Could not parse timestamp: {wrong}") from None
    raise BadRecord(f"{type(value).__name__} is no time")


def _from_moment(moment: dt.datetime, target: str, dates: JavaDates | None, unit: str) -> Any:
    moment = moment.astimezone(dt.UTC)
    if target == "string":
        assert dates is not None
        return dates.format(moment)
    if target == "unix":
        microseconds = (moment - _EPOCH) // dt.timedelta(microseconds=1)
        return microseconds * 1000 if unit == "nanoseconds" else microseconds // _UNITS[unit]
    if target == "Date":
        return moment.date()
    if target == "Time":
        return moment.time()
    return moment
