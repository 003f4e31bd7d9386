"""Connect's logical types between Python and the plain type below them."""

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Context as DecimalContext
from decimal import Decimal, Inexact
from typing import Any, Final

from ottla.connect.errors import BadRecord
from ottla.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_MS: Final = dt.timedelta(milliseconds=1)
_EXACT: Final = DecimalContext(prec=1 << 16, traps=[Inexact])


def _decimal_to_bytes(schema: Schema, value: Any) -> bytes:
    if not isinstance(value, Decimal):
        raise BadRecord(f"a Decimal was expected, not {type(value).__name__}")
    return unscaled_bytes(value, scale_of(schema))


def unscaled_bytes(value: Decimal, scale: int) -> bytes:
    """The digits of a Decimal with so many after the point, as a whole number in two's complement. Raises BadRecord."""
    if not value.is_finite():
        raise BadRecord(f"{value} cannot be written as a Decimal")
    try:
        scaled = value.scaleb(scale, _EXACT)
    except Inexact:
        raise _too_exact(value, scale) from None
    unscaled = int(scaled)
    if unscaled != scaled:
        raise _too_exact(value, scale)
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _too_exact(value: Decimal, scale: int) -> BadRecord:
    return BadRecord(f"{value} has more than the {scale} digits after the point that its schema allows")


def decimals_of(schema: Schema) -> Callable[[bytes], Decimal]:
    """What makes Decimals of bytes in two's complement, by the scale of their schema. Raises BadRecord."""
    exponent = -scale_of(schema)
    return lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(exponent, _EXACT)


def _decimal_from_bytes(schema: Schema, value: bytes) -> Decimal:
    return decimals_of(schema)(value)


def scale_of(schema: Schema) -> int:
    """Digits after the point of a Decimal's schema. Raises BadRecord."""
    try:
        return int((schema.parameters or {})["scale"])
    except (KeyError, ValueError, TypeError):
        raise BadRecord("a schema of Decimal needs the parameter `scale`, a number") from None


def _date_to_days(schema: Schema, value: Any) -> int:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise BadRecord(f"a date was expected, not {type(value).__name__}")
    return (value - _EPOCH_DAY).days


def _time_to_ms(schema: Schema, value: Any) -> int:
    if not isinstance(value, dt.time):
        raise BadRecord(f"a time was expected, not {type(value).__name__}")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _timestamp_to_ms(schema: Schema, value: Any) -> int:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        raise BadRecord("a datetime with a time zone was expected")
    return (value - _EPOCH) // _MS


def _ms_to_time(schema: Schema, value: int) -> dt.time:
    if not 0 <= value < 86_400_000:
        raise BadRecord(f"{value} ms are no time of a day")
    return (_EPOCH + value * _MS).time()


def _days_to_date(schema: Schema, value: int) -> dt.date:
    try:
        return _EPOCH_DAY + dt.timedelta(days=value)
    except OverflowError:
        raise BadRecord(f"the day {value} is beyond the years 1 to 9999") from None


def _ms_to_timestamp(schema: Schema, value: int) -> dt.datetime:
    try:
        return _EPOCH + dt.timedelta(0, 0, 0, value)
    except OverflowError:
        raise BadRecord(f"{value} ms since 1970 are beyond the years 1 to 9999") from None


TO_PLAIN: Final[Mapping[str, Callable[[Schema, Any], Any]]] = {
    DECIMAL: _decimal_to_bytes,
    DATE: _date_to_days,
    TIME: _time_to_ms,
    TIMESTAMP: _timestamp_to_ms,
}
"""From Python's type to bytes or int, by the schema's name. Raises BadRecord."""

FROM_PLAIN: Final[Mapping[str, Callable[[Schema, Any], Any]]] = {
    DECIMAL: _decimal_from_bytes,
    DATE: _days_to_date,
    TIME: _ms_to_time,
    TIMESTAMP: _ms_to_timestamp,
}
"""The other way."""
