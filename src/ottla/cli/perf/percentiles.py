"""Percentiles of measured times. Pure."""

import math
from collections.abc import Sequence
from typing import Final

PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9)


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed (nearest rank). Raises ValueError if empty."""
    if not ascending:
        raise ValueError("no values")
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]


def summarize_ms(times_s: Sequence[float]) -> dict[str, float]:
    """Times in seconds as `mean`, `p50`, ..., `p99.9` and `max`, in milliseconds; empty for no times."""
    if not times_s:
        return {}
    ascending = sorted(times_s)
    summary = {"mean": sum(ascending) / len(ascending)}
    summary.update({f"p{percent:g}": percentile(ascending, percent) for percent in PERCENTILES})
    summary["max"] = ascending[-1]
    return {name: round(value * 1000, 3) for name, value in summary.items()}
