"""Headers: `SimpleHeaderConverter`, which writes text and guesses types when it reads, or any converter of values."""

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.converters.base import Converter, converter
from ottla.connect.converters.json_converter import json_text
from ottla.connect.schema import BOOLEAN, FLOAT64, INT8, INT16, INT32, INT64, STRING, Schema

SIMPLE: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

_INTEGER: Final = re.compile(r"[+-]?\d{1,19}")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


class SimpleHeaderConverter(Converter):
    """Text for every value; `true`, numbers, lists and objects in JSON are read as such, all else as a string."""

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The value as text."""
        if value is None:
            return None
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dt.date | dt.time):
            return value.isoformat().encode()
        return json_text(value).strip('"').encode()

    def to_value(self, topic: str, payload: bytes | None) -> tuple[Schema | None, Any]:
        """A value, with a schema if it is of a simple type."""
        if payload is None:
            return None, None
        text = payload.decode(errors="replace")
        if text in ("true", "false"):
            return BOOLEAN, text == "true"
        if _INTEGER.fullmatch(text):
            number = int(text)
            for bits, schema in ((7, INT8), (15, INT16), (31, INT32), (63, INT64)):
                if -(1 << bits) <= number < 1 << bits:
                    return schema, number
        if _NUMBER.fullmatch(text):
            return FLOAT64, float(text)
        if text[:1] in ("[", "{"):
            try:
                return None, json.loads(text)
            except ValueError:
                return STRING, text
        return STRING, text


def header_converter(name: str, settings: Mapping[str, str]) -> Converter:
    """The converter of headers with a class's name. Raises ConfigError."""
    if name in (SIMPLE, "SimpleHeaderConverter"):
        return SimpleHeaderConverter()
    return converter(name, settings, is_key=False, setting="header.converter")
