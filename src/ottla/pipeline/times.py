"""PURE: durations as people write them, and times as Spark does."""

import re
from datetime import UTC, datetime
from typing import Final

_DURATION: Final = re.compile(r"(\d+) *(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)")
_US: Final = {"ms": 1_000, "mi": 60_000_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def microseconds(text: str) -> int | None:
    """`30 seconds` or `90 days` in microseconds; None for what is no duration."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    unit = found[2]
    short = "ms" if unit == "ms" or unit.startswith("mill") else unit[:2] if unit.startswith("mi") else unit[0]
    return int(found[1]) * _US[short]


def time_text(us: int) -> str:
    """Microseconds since 1970 as Spark writes a time into JSON: `2026-01-31T08:00:00.123Z`."""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
