"""Small plots of one figure over time, as the points of an SVG line that the server draws. PURE."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

WIDTH: Final = 600
HEIGHT: Final = 90
_EDGE: Final = 4
_FEWEST: Final = 2


class Sample(NamedTuple):
    """A figure at a time, in seconds since 1970."""

    at: float
    value: float


class Plot(NamedTuple):
    """A line and what stands beside it. `points` as SVG's `polyline` has them, within WIDTH x HEIGHT."""

    points: str
    area: str
    least: str
    most: str
    first_at: str
    last_at: str
    sentence: str
    """The plot in words, for screen readers."""


def plot(samples: Sequence[Sample], written: Callable[[float], str]) -> Plot | None:
    """The plot of these samples, the oldest first; None for fewer than two. `written` makes a value a text."""
    if len(samples) < _FEWEST:
        return None
    values = [each.value for each in samples]
    began, ended = samples[0].at, samples[-1].at
    highest = max(values)
    over = ended - began or 1.0
    inner = HEIGHT - 2 * _EDGE
    points = [
        (WIDTH * (each.at - began) / over, HEIGHT - _EDGE - inner * (each.value / highest if highest > 0 else 0.0))
        for each in samples
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    least, most, now = written(min(values)), written(highest), written(values[-1])
    first_at, last_at = _clock(began), _clock(ended)
    return Plot(
        line,
        f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}",
        least,
        most,
        first_at,
        last_at,
        f"From {first_at} to {last_at} between {least} and {most}, now {now}.",
    )


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ")
