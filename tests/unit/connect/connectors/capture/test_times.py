"""Texts of dates and times, near and far."""

from datetime import date, datetime, timedelta

import pytest

from ottla.connect.connectors.capture import times

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1969-12-31", -1),
        ("2024-02-29", 19782),
        ("10000-01-01", 2932897),
        ("0001-01-01", -719162),
        ("0001-12-31 BC", -719163),
        ("0044-03-15 BC", -735160),
        ("infinity", 2147483647),
        ("-infinity", -2147483648),
    ],
)
def test_days(text: str, days: int) -> None:
    assert times.days(text) == days


def test_far_years_are_counted_as_near_ones_are() -> None:
    for year in range(1, 9999, 97):
        text = date(year, 3, 1).isoformat()
        assert times._far_days(times._far(text)) == times.days(text)


def test_timestamps() -> None:
    at = datetime(2024, 2, 29, 12, 0, 0, 250000)  # noqa: DTZ001
    assert times.timestamp_us("2024-02-29 12:00:00.25") == (at - EPOCH) // timedelta(microseconds=1)
    assert times.timestamp_us("10000-01-01 00:00:00.000001") == 253402300800000001
    assert times.timestamp_us("0001-12-31 23:59:59.5 BC") == -62135596800500000
    assert times.timestamp_us("infinity") == 9223372036825200000
    assert times.timestamp_ms("-infinity") == -9223372036832400000
    assert times.timestamp_ms("1969-12-31 23:59:59.9995") == -1
    with pytest.raises(ValueError, match="is no date"):
        times.timestamp_us("yesterday")


def test_times_of_day() -> None:
    assert times.time_us("24:00:00") == 86_400_000_000
    assert times.time_us("-01:00:00.5") == -3_600_500_000
    assert times.zoned_time("01:00:00+02:30") == "22:30:00Z"
    assert times.zoned_time("23:00:00-02") == "01:00:00Z"
    assert times.zoned_timestamp("2024-02-29 12:00:00+00", 0) == "2024-02-29T12:00:00Z"
    assert times.zoned_timestamp("2024-02-29 12:00:00.5+00") == "2024-02-29T12:00:00.500000Z"
    assert times.zoned_timestamp("2024-02-29 12:00:00+00", 3) == "2024-02-29T12:00:00.000Z"
    assert times.zoned_timestamp("0044-03-15 12:00:00+00 BC", 0) == "0044-03-15T12:00:00Z BC"
    assert times.zoned_timestamp("infinity") == "infinity"


def test_intervals() -> None:
    text = "P1Y2M-3DT4H-5M6.5S"
    month_us = 365.25 / 12 * 86400e6
    assert times.interval_us(text) == 14 * month_us - 3 * 86_400_000_000 + (4 * 3600 - 300) * 1_000_000 + 6_500_000
    assert times.interval_text(text) == "P1Y2M-3DT4H-5M6.5S"
    assert times.interval_text("PT0S") == "P0Y0M0DT0H0M0S"
