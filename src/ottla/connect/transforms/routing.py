"""Transforms of topics and headers, the filter, and predicates.

Source: `RegexRouter`, `TimestampRouter`, `Filter`, `InsertHeader`, `DropHeaders`, `HeaderFrom` and the predicates of
`org.apache.kafka.connect.transforms`.
"""

import datetime as dt
import functools
import re
from typing import Any, Final

from ottla.connect.converters.headers import SimpleHeaderConverter
from ottla.connect.errors import BadRecord
from ottla.connect.records import Header, Record
from ottla.connect.schema import Field, Schema
from ottla.connect.transforms.base import Options, Predicate, Transform
from ottla.connect.transforms.java_dates import JavaDates
from ottla.connect.transforms.sides import Remembered, Side, fields_of, with_fields

_GROUP: Final = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}")
_MOST_NAMES: Final = 1000
"""Topics whose new names are remembered."""


def regex_router(options: Options, _side: str) -> Transform:
    """regex, replacement ($1): topics whose whole name matches get another."""
    pattern = options.pattern("regex")
    replacement = options.text("replacement")

    def new_name(match: re.Match[str]) -> str:
        def part(token: re.Match[str]) -> str:
            if token[1] is not None:
                return token[1]
            return match[int(token[2])] or "" if token[2] else match[token[3]] or ""

        return _GROUP.sub(part, replacement)

    @functools.lru_cache(_MOST_NAMES)
    def renamed(topic: str) -> str | None:
        match = pattern.fullmatch(topic)
        return None if match is None else new_name(match)

    def route(record: Record) -> Any:
        try:
            name = renamed(record.topic)
            return record if name is None else record.replaced(topic=name)
        except IndexError:
            raise BadRecord(f"the replacement {replacement!r} names a group that {pattern.pattern!r} has not") from None

    return route


def timestamp_router(options: Options, _side: str) -> Transform:
    """topic.format (${topic}-${timestamp}), timestamp.format (yyyyMMdd)."""
    form = options.text("topic.format", "${topic}-${timestamp}")
    try:
        dates = JavaDates(options.text("timestamp.format", "yyyyMMdd"))
    except ValueError as wrong:
        raise options.wrong("timestamp.format", f"cannot be used: {wrong}") from None

    def route(record: Record) -> Any:
        if record.timestamp is None:
            raise BadRecord("Timestamp missing on record")
        moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=record.timestamp)
        text = form.replace("${topic}", record.topic).replace("${timestamp}", dates.format(moment))
        return record.replaced(topic=text)

    return route


def filter_(_options: Options, _side: str) -> Transform:
    """Drops every record; a predicate selects them."""
    return lambda record: None


def insert_header(options: Options, _side: str) -> Transform:
    """header, value.literal: adds a header; numbers, true and false are taken as such."""
    name = options.text("header")
    schema, value = SimpleHeaderConverter().to_value("", options.text("value.literal").encode())
    added = Header(name, value, schema)
    return lambda record: record.replaced(headers=(*record.headers, added))


def drop_headers(options: Options, _side: str) -> Transform:
    """headers: names of those that are dropped."""
    names = set(options.items("headers"))
    if not names:
        raise options.wrong("headers", "is missing")
    return lambda record: record.replaced(headers=tuple(each for each in record.headers if each.key not in names))


def header_from(options: Options, side_name: str) -> Transform:
    """fields, headers (as many), operation (copy or move)."""
    side, fields, headers = Side(side_name), options.items("fields"), options.items("headers")
    operation = options.text("operation").lower()
    if not fields or len(fields) != len(headers):
        raise options.wrong("headers", "has as many names as `fields`, at least one")
    if operation not in ("copy", "move"):
        raise options.wrong("operation", f"is copy or move, not {operation!r}")
    moved = set(fields) if operation == "move" else set()

    def work_out(schema: Schema) -> Schema:
        kept: list[Field] = [each for each in schema.fields if each.name not in moved]
        return with_fields(schema, kept)

    smaller = Remembered(work_out)

    def change(record: Record) -> Any:
        schema, value = side.of(record)
        known = fields_of(schema, value, "header from")
        kinds = {} if schema is None else schema.by_name
        added = [
            Header(header, known.get(field), kinds[field].schema if field in kinds else None)
            for field, header in zip(fields, headers, strict=True)
            if schema is not None or field in known
        ]
        new = {name: each for name, each in known.items() if name not in moved}
        changed = side.put(record, None if schema is None else smaller(schema), new)
        return changed.replaced(headers=(*record.headers, *added))

    return change


def has_header_key(options: Options) -> Predicate:
    """name: of a header that is there."""
    name = options.text("name")
    return lambda record: any(each.key == name for each in record.headers)


def record_is_tombstone(_options: Options) -> Predicate:
    """No value."""
    return lambda record: record.value is None


def topic_name_matches(options: Options) -> Predicate:
    """pattern: of the whole name."""
    pattern = options.pattern("pattern")
    matches = functools.lru_cache(_MOST_NAMES)(lambda topic: pattern.fullmatch(topic) is not None)
    return lambda record: matches(record.topic)
