"""Points in time and durations as people type them on a command line, in milliseconds. Pure: "now" is an argument."""

import re
from datetime import UTC, datetime
from typing import Final

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_EPOCH_MS: Final = re.compile(r"\d{12,14}")


def parse_duration_ms(text: str) -> int:
    """`90s`, `10m`, `1h30m`, `2.5d`, `250ms` as milliseconds. Raises ValueError."""
    compact = text.strip().lower().replace(" ", "")
    if not _DURATION.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration such as 30s, 10m, 2h or 7d")
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(compact)))


def parse_instant_ms(text: str, now_ms: int) -> int:
    """A point in time as milliseconds since the epoch.

    `10m` and `2h` count back from now; `now`; ISO 8601 such as `2026-01-31`, `2026-01-31T08:00` (local time) or
    `2026-01-31T08:00:00Z`; or milliseconds since the epoch. Raises ValueError.
    """
    stripped = text.strip()
    if stripped.lower() == "now":
        return now_ms
    if _EPOCH_MS.fullmatch(stripped):
        return int(stripped)
    try:
        return now_ms - parse_duration_ms(stripped)
    except ValueError:
        pass
    try:
        # A time without a zone means the zone of the person typing it.
        return round(datetime.fromisoformat(stripped).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time: give 10m or 2h (ago), 2026-01-31T08:00:00Z, or milliseconds since 1970"
        ) from None


def format_instant(timestamp_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC, such as `2026-01-31T08:00:00.123Z`."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
