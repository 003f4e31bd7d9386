"""PURE: dates and times as databases write them, in Debezium's numbers and texts."""

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (a wall clock's, as the columns are)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_US: Final = timedelta(microseconds=1)
_DAY_US: Final = 86_400_000_000
_MONTH_US: Final = 2_629_800_000_000
"""365.25 / 12 days, by which Debezium counts months."""

INFINITY_MS: Final = 9_223_372_036_825_200_000
MINUS_INFINITY_MS: Final = -9_223_372_036_832_400_000
"""PostgreSQL's infinite times as Debezium writes them, in milliseconds and microseconds alike."""
_INFINITE_DAYS: Final = {"infinity": 2_147_483_647, "-infinity": -2_147_483_648}
_INFINITE: Final = {"infinity": INFINITY_MS, "-infinity": MINUS_INFINITY_MS}

_FAR_DATE: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?:[ T](\d[\d:.]*))?( BC)?")
_TIME_OF_DAY: Final = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE: Final = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
_PART: Final = re.compile(r"(-?[\d.]+)([YMWDHS])")


def days(text: str) -> int:
    """Days from 1970-01-01 to `2024-02-29`, `0044-03-15 BC`, `infinity`."""
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        infinite = _INFINITE_DAYS.get(text)
        return _far_days(_far(text)) if infinite is None else infinite


def timestamp_us(text: str) -> int:
    """Microseconds from 1970 to `2024-02-29 12:00:00.25`, of any year of which 64 bits have them; or ValueError."""
    try:
        return _near_us(text)
    except ValueError:
        return _in_64_bits(_far_us(text))


def timestamp_ms(text: str) -> int:
    """As `timestamp_us`, in milliseconds, which 64 bits have of any year."""
    try:
        return _near_us(text) // 1000
    except ValueError:
        return _INFINITE[text] if text in _INFINITE else _far_us(text) // 1000


def _near_us(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _US


def _far_us(text: str) -> int:
    infinite = _INFINITE.get(text)
    if infinite is not None:
        return infinite
    found = _far(text)
    return _far_days(found) * _DAY_US + time_us(found[4] or "00:00:00")


def _in_64_bits(us: int) -> int:
    if not -1 << 63 <= us < 1 << 63:
        raise ValueError(f"{us} microseconds have more than 64 bits")
    return us


def time_us(text: str) -> int:
    """Microseconds of `23:59:59.25`; `24:00:00`, which is a time in SQL, too, and MariaDB's `-838:59:59`."""
    found = _TIME_OF_DAY.fullmatch(text.removeprefix("-"))
    if found is None:
        raise ValueError(f"{text!r} is no time of day")
    hours, minutes, seconds, fraction = found.groups()
    total = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -total if text[0] == "-" else total


def time_ms(text: str) -> int:
    """As `time_us`, in milliseconds."""
    return time_us(text) // 1000


def zoned_timestamp(text: str, digits: int = 6) -> str:
    """`2024-02-29 12:00:00.25+00`, as a session in UTC writes it, as `2024-02-29T12:00:00.250000Z`: so many digits."""
    day, _, of_day = text.partition(" ")
    clock, zone, rest = of_day.partition("+00")
    if not zone:  # infinity
        return text
    if digits:
        seconds, _, fraction = clock.partition(".")
        clock = f"{seconds}.{fraction.ljust(digits, '0')}"
    return f"{day}T{clock}Z{rest}"


def zoned_time(text: str) -> str:
    """`12:00:00+02` as `10:00:00Z`."""
    zone = _ZONE.search(text)
    if zone is None:
        raise ValueError(f"{text!r} has no time zone")
    sign, hours, minutes, seconds = zone.groups()
    offset = (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)) * (1 if sign == "+" else -1)
    us = (time_us(text[: zone.start()]) - offset * 1_000_000) % _DAY_US
    at = (_EPOCH + timedelta(microseconds=us)).time()
    return at.isoformat().rstrip("0").rstrip(".") + "Z" if at.microsecond else at.isoformat() + "Z"


def connect_date(text: str) -> date:
    """For Connect's own Date. Raises ValueError for a year that it cannot be."""
    return date.fromisoformat(text)


def connect_time(text: str) -> time:
    """For Connect's own Time."""
    return (_EPOCH + timedelta(microseconds=time_us(text) % _DAY_US)).time()


def connect_timestamp(text: str) -> datetime:
    """For Connect's own Timestamp. Raises ValueError for a year that it cannot be."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def interval_parts(text: str) -> tuple[int, int, int, int, int, Decimal]:
    """Years, months, days, hours, minutes and seconds of an interval in ISO 8601 (`P1Y2M-3DT4H5M6.5S`)."""
    if not text.startswith("P"):
        raise ValueError(f"{text!r} is no interval of ISO 8601")
    of_days, _, of_times = text[1:].partition("T")
    days_found = {unit: int(number) for number, unit in _PART.findall(of_days)}
    times_found = {unit: Decimal(number) for number, unit in _PART.findall(of_times)}
    return (
        days_found.get("Y", 0),
        days_found.get("M", 0),
        days_found.get("D", 0),
        int(times_found.get("H", 0)),
        int(times_found.get("M", 0)),
        times_found.get("S", Decimal(0)),
    )


def interval_us(text: str) -> int:
    """Debezium's approximation of an interval: microseconds."""
    years, months, whole_days, hours, minutes, seconds = interval_parts(text)
    of_clock = (hours * 3600 + minutes * 60) * 1_000_000 + int(seconds * 1_000_000)
    return _in_64_bits((years * 12 + months) * _MONTH_US + whole_days * _DAY_US + of_clock)


def interval_text(text: str) -> str:
    """Every part of an interval, as Debezium writes it: `P1Y2M3DT4H5M6.5S`."""
    years, months, whole_days, hours, minutes, seconds = interval_parts(text)
    plain = f"{seconds:f}"
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return f"P{years}Y{months}M{whole_days}DT{hours}H{minutes}M{plain}S"


def _far(text: str) -> "re.Match[str]":
    found = _FAR_DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no date")
    return found


def _far_days(found: "re.Match[str]") -> int:
    """Days of a year that Python's dates do not reach: 400 years have a fixed number of days."""
    year = int(found[1])
    if found[5]:
        year = 1 - year
    cycles, year_in_cycle = divmod(year, 400)
    near = date(2000 + year_in_cycle, int(found[2]), int(found[3])).toordinal()
    return near - _EPOCH_DAY + (cycles - 5) * 146_097
