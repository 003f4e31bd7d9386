"""PURE: PostgreSQL's types as schemas and converters of the texts in which the server sends values.

The same converters read the replication stream and the snapshot: both come as the types' output functions write them,
in sessions set up by `SESSION`. Source of the mapping: Debezium 3.2, PostgresValueConverter. Types that Debezium leaves
out (composite ones, say) come as their text here.
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final, Protocol

from ottla.connect.api import ConnectError
from ottla.connect.connectors.capture import times, types
from ottla.connect.connectors.capture.selection import variable_decimal
from ottla.connect.connectors.postgres.decoding.literals import hstore_json, parse_array
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    array,
    date,
    time,
    timestamp,
)

SESSION: Final = (
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c extra_float_digits=3 -c bytea_output=hex "
    "-c lc_monetary=C -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 "
    "-c row_security=off"
)
"""Options of every session that reads values, for the texts to be the ones that converters expect.

row_security: a policy that hides rows from the role is an error then; otherwise a snapshot would lack them in silence.
"""

_FUNCTION: Final = re.compile(r"\(?[A-Za-z_][\w.]*\(|CURRENT_|LOCALTIME", re.IGNORECASE)
_LITERAL: Final = re.compile(r"'((?:[^']|'')*)'")

_EXACT: Final = Context(prec=1 << 18)
"""More digits than a numeric can have."""

Convert = Callable[[str], Any]


class Modes(Protocol):
    """What settings decide about types."""

    @property
    def decimal_handling_mode(self) -> str: ...
    @property
    def time_precision_mode(self) -> str: ...
    @property
    def binary_handling_mode(self) -> str: ...
    @property
    def interval_handling_mode(self) -> str: ...
    @property
    def unavailable_value_placeholder(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A row of pg_type, as far as it matters here. `kind`: pg_type.typtype (b, c, d, e, r, ...)."""

    oid: int
    name: str
    kind: str = "b"
    element_oid: int = 0
    base_oid: int = 0
    base_modifier: int = -1
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mapped:
    """when_unchanged: of a value that stayed in TOAST; when_missing: of a null where none is allowed."""

    schema: Schema
    convert: Convert
    when_unchanged: Any
    when_missing: Any


def map_type(oid: int, modifier: int, known: Mapping[int, PostgresType], modes: Modes) -> Mapped:
    """Conversion of a type's values; those of an unknown OID become texts."""
    kind = known.get(oid)
    if kind is not None and kind.kind == "d":
        return map_type(kind.base_oid, kind.base_modifier if modifier < 0 else modifier, known, modes)
    if kind is not None and kind.element_oid:
        element = known.get(kind.element_oid)
        of_boxes = element is not None and element.name == "box"
        return _array(map_type(kind.element_oid, modifier, known, modes), modes, of_boxes=of_boxes)
    if kind is not None and kind.kind == "e":
        return _text(types.enumeration(list(kind.labels)), modes)
    make = _BY_NAME.get(kind.name) if kind is not None else None
    return make(modifier, modes) if make is not None else _text(STRING, modes)


def character_length(oid: int, modifier: int, known: Mapping[int, PostgresType]) -> int | None:
    """How many characters a column can have; None for those without a limit, or without characters."""
    kind = known.get(oid)
    if kind is not None and kind.kind == "d":
        return character_length(kind.base_oid, kind.base_modifier if modifier < 0 else modifier, known)
    return modifier - 4 if kind is not None and kind.name in ("varchar", "bpchar") and modifier > 4 else None


def default_value(expression: str, mapped: Mapped) -> Any:
    """What a column's default, as an expression of SQL, is in its schema: what a function makes is not known, and is
    there what stands for a null. None: no default that a schema can have.
    """
    if expression.startswith("NULL"):
        return None
    literal = _LITERAL.search(expression)
    if _FUNCTION.match(expression):
        if mapped.schema is types.ZONED_TIMESTAMP:
            return mapped.convert("1970-01-01 00:00:00+00")
        return None if isinstance(mapped.when_missing, dict | list) else mapped.when_missing
    if literal is not None:
        text = literal[1].replace("''", "'")
    else:
        text = {"true": "t", "false": "f"}.get(expression, expression)
    try:
        value = mapped.convert(text)
    except (ValueError, ArithmeticError, ConnectError):
        return None
    if isinstance(value, Decimal):
        scale = int((mapped.schema.parameters or {}).get("scale", 0))
        return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return None if isinstance(value, dict | list) else value


def _array(element: Mapped, modes: Modes, *, of_boxes: bool) -> Mapped:
    placeholder = modes.unavailable_value_placeholder
    unchanged: list[Any] = [element.when_unchanged]
    if element.schema in (INT16, INT32, INT64):  # one number per byte: nothing else fits (Debezium does the same)
        unchanged = list(placeholder.encode())
    parse = partial(parse_array, convert=element.convert, of_boxes=of_boxes)
    return Mapped(array(element.schema.as_optional()), parse, unchanged, [])


def _text(schema: Schema, modes: Modes) -> Mapped:
    return Mapped(schema, str, modes.unavailable_value_placeholder, "")


def _plain(schema: Schema, convert: Convert, missing: Any) -> Callable[[int, Modes], Mapped]:
    """The mapping of types that never go to TOAST."""
    return lambda _modifier, _modes: Mapped(schema, convert, missing, missing)


def _named_text(schema: Schema) -> Callable[[int, Modes], Mapped]:
    return lambda _modifier, modes: _text(schema, modes)


def _boolean(text: str) -> bool:
    return text == "t"


def _numeric(modifier: int, modes: Modes) -> Mapped:
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if scale >= 1024:  # numeric(3, -2): digits before the point that are zeros
        scale -= 2048
    is_fixed = modifier >= 4
    if modes.decimal_handling_mode == "string":
        return Mapped(STRING, str, modes.unavailable_value_placeholder, f"{0:.{max(scale, 0) if is_fixed else 0}f}")
    if modes.decimal_handling_mode == "double":
        return Mapped(FLOAT64, float, 0.0, 0.0)
    if not is_fixed:
        nothing = {"scale": 0, "value": b"\0"}
        return Mapped(types.VARIABLE_DECIMAL, lambda text: variable_decimal(_finite(text)), nothing, nothing)
    return Mapped(types.decimal(precision, scale), _finite, Decimal(0), Decimal(0))


def _finite(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ConnectError(
            f"a numeric column holds {text}, which Connect's Decimal cannot be: "
            "set decimal.handling.mode to string or double"
        )
    return value


def _money(_modifier: int, modes: Modes) -> Mapped:
    """The text is that of the locale C: `-$1,234.50`."""
    if modes.decimal_handling_mode == "string":
        return Mapped(STRING, lambda text: str(_money_value(text)), "0.00", "0.00")
    if modes.decimal_handling_mode == "double":
        return Mapped(FLOAT64, lambda text: float(_money_value(text)), 0.0, 0.0)
    schema = types.decimal(0, 2)
    schema = Schema(schema.type, name=schema.name, version=1, parameters={"scale": "2"})
    return Mapped(schema, _money_value, Decimal(0), Decimal(0))


def _money_value(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


def _bytes(_modifier: int, modes: Modes) -> Mapped:
    mode, placeholder = modes.binary_handling_mode, modes.unavailable_value_placeholder
    if mode == "bytes":
        return Mapped(BYTES, _unhexed, placeholder.encode(), b"")
    encode: Mapping[str, Convert] = {
        "hex": lambda text: text[2:],
        "base64": lambda text: base64.b64encode(_unhexed(text)).decode(),
        "base64-url-safe": lambda text: base64.urlsafe_b64encode(_unhexed(text)).decode(),
    }
    return Mapped(STRING, encode[mode], placeholder, "")


def _unhexed(text: str) -> bytes:
    return bytes.fromhex(text[2:])  # after \x


def _bits(modifier: int, modes: Modes, *, varying: bool = False) -> Mapped:
    if modifier == 1 and not varying:
        return Mapped(BOOLEAN, lambda text: text == "1", False, False)
    length = modifier if modifier > 0 else 2_147_483_647
    return Mapped(types.bits(length), _bits_value, modes.unavailable_value_placeholder.encode(), b"")


def _bits_value(text: str) -> bytes:
    """The lowest byte first, without leading zero bytes, as Java's BitSet."""
    bits = int(text, 2) if text else 0
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _point(_modifier: int, _modes: Modes) -> Mapped:
    return Mapped(types.POINT, _point_value, None, _point_value("(0,0)"))


def _point_value(text: str) -> dict[str, Any]:
    x, y = map(float, text.strip("()").split(","))
    return {"x": x, "y": y, "wkb": struct.pack("<BIdd", 1, 1, x, y), "srid": None}


def _date(_modifier: int, modes: Modes) -> Mapped:
    if modes.time_precision_mode == "connect":
        return Mapped(date(), times.connect_date, None, times.connect_date("1970-01-01"))
    return Mapped(types.DATE, times.days, 0, 0)


def _time(modifier: int, modes: Modes) -> Mapped:
    if modes.time_precision_mode == "connect":
        return Mapped(time(), times.connect_time, None, times.connect_time("00:00:00"))
    if modes.time_precision_mode == "adaptive" and 0 <= modifier <= 3:
        return Mapped(types.TIME_MS, times.time_ms, 0, 0)
    return Mapped(types.TIME_US, times.time_us, 0, 0)


def _timestamp(modifier: int, modes: Modes) -> Mapped:
    if modes.time_precision_mode == "connect":
        return Mapped(timestamp(), times.connect_timestamp, None, times.connect_timestamp("1970-01-01 00:00:00"))
    if 0 <= modifier <= 3:
        return Mapped(types.TIMESTAMP_MS, times.timestamp_ms, 0, 0)
    return Mapped(types.TIMESTAMP_US, times.timestamp_us, 0, 0)


def _timestamptz(modifier: int, _modes: Modes) -> Mapped:
    convert = partial(times.zoned_timestamp, digits=modifier if 0 <= modifier < 6 else 6)
    return Mapped(types.ZONED_TIMESTAMP, convert, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z")


def _interval(_modifier: int, modes: Modes) -> Mapped:
    if modes.interval_handling_mode == "string":
        return Mapped(types.INTERVAL, times.interval_text, "P0Y0M0DT0H0M0S", "P0Y0M0DT0H0M0S")
    return Mapped(types.DURATION_US, times.interval_us, 0, 0)


def _hstore(_modifier: int, modes: Modes) -> Mapped:
    placeholder = modes.unavailable_value_placeholder
    return Mapped(types.JSON, hstore_json, f'{{"{placeholder}":"{placeholder}"}}', "{}")


_BY_NAME: Final[Mapping[str, Callable[[int, Modes], Mapped]]] = {
    "bool": _plain(BOOLEAN, _boolean, False),
    "int2": _plain(INT16, int, 0),
    "int4": _plain(INT32, int, 0),
    "int8": _plain(INT64, int, 0),
    "oid": _plain(INT64, int, 0),
    "float4": _plain(FLOAT32, float, 0.0),
    "float8": _plain(FLOAT64, float, 0.0),
    "numeric": _numeric,
    "money": _money,
    "bytea": _bytes,
    "bit": _bits,
    "varbit": partial(_bits, varying=True),
    "json": _named_text(types.JSON),
    "jsonb": _named_text(types.JSON),
    "xml": _named_text(types.XML),
    "ltree": _named_text(types.LTREE),
    "uuid": _plain(types.UUID, str, ""),
    "point": _point,
    "date": _date,
    "time": _time,
    "timetz": _plain(types.ZONED_TIME, times.zoned_time, "00:00:00Z"),
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
    "hstore": _hstore,
}
"""By the name in pg_type: some of the types are extensions', whose OIDs differ between databases."""
