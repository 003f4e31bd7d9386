"""Times and durations as typed on a command line."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.terminal.times import format_instant, parse_duration_ms, parse_instant_ms

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("2.5d", 216_000_000),
        ("1w", 604_800_000),
        (" 2 H ", 7_200_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "10x", "1h 30", "10 minutes ago"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("now", NOW_MS),
        ("10m", NOW_MS - 600_000),
        ("2026-01-01T00:00:00Z", NOW_MS),
        ("2026-01-01T00:00:00.250Z", NOW_MS + 250),
        ("2026-01-01T02:00:00+02:00", NOW_MS),
        ("1767225600000", NOW_MS),
    ],
)
def test_instants(text: str, expected_ms: int) -> None:
    assert parse_instant_ms(text, NOW_MS) == expected_ms


def test_a_time_without_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 8, 0).astimezone()
    assert parse_instant_ms("2026-01-31T08:00", NOW_MS) == round(local.timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12345"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time: give 10m"):
        parse_instant_ms(text, NOW_MS)


@settings(deadline=None)  # the machine may be busy
@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_a_formatted_instant_reads_back(timestamp_ms: int) -> None:
    assert parse_instant_ms(format_instant(timestamp_ms), 0) == timestamp_ms


def test_format_is_utc_with_milliseconds() -> None:
    assert format_instant(NOW_MS + 7) == "2026-01-01T00:00:00.007Z"
    assert datetime.fromisoformat(format_instant(-1)) == datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


def test_a_timestamp_beyond_the_calendar_stays_a_number() -> None:
    assert format_instant(1 << 62) == str(1 << 62)
