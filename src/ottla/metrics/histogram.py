"""Durations in buckets whose width grows with the duration: a few list cells, whatever is counted.

    microseconds   0 1 2 3 | 4 5 6 7 | 8 10 12 14 | 16 20 24 28 | 32 40 ...      four buckets for each power of two

A quantile is at most an eighth off. Quantiles are those of the current and the last period, so that a slow minute does
not hide behind a fast month; count and sum are since the start.
"""

from collections.abc import Sequence
from typing import Final

BUCKETS: Final = 4 * 38
"""Up to 2^39 microseconds: six days."""
PERIOD_S: Final = 60.0
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those that Kafka's histograms have."""
MICROSECONDS: Final = 1e6


class Durations:
    """Counts durations; on one thread."""

    __slots__ = ("_before", "_now", "_period_ends", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self._now = [0] * BUCKETS
        self._before = [0] * BUCKETS
        self._period_ends = 0.0

    def add(self, duration_s: float) -> None:
        """Count one duration, in seconds; below zero counts as zero."""
        self.count += 1
        self.total_s += duration_s
        micros = int(duration_s * MICROSECONDS)
        if micros < 4:
            index = max(micros, 0)
        else:
            power = micros.bit_length() - 1
            index = 4 * (power - 1) + ((micros >> (power - 2)) & 3)
            if index >= BUCKETS:
                index = BUCKETS - 1
        self._now[index] += 1

    def add_all(self, durations_s: Sequence[float]) -> None:
        """Count many at once, each as `add` does."""
        self.count += len(durations_s)
        self.total_s += sum(durations_s)
        now = self._now
        for duration_s in durations_s:
            micros = int(duration_s * MICROSECONDS)
            if micros < 4:
                index = max(micros, 0)
            else:
                power = micros.bit_length() - 1
                index = min(4 * (power - 1) + ((micros >> (power - 2)) & 3), BUCKETS - 1)
            now[index] += 1

    def quantiles(self, now_s: float, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """The durations, in seconds, below which these shares lie (0 < share < 1); 0 where nothing was counted.

        `now_s` is of a clock that never goes back. A period ends with the first call after its time is up.
        """
        buckets = [now + before for now, before in zip(self._now, self._before, strict=True)]
        if now_s >= self._period_ends:
            self._period_ends = now_s + PERIOD_S
            self._before, self._now = self._now, [0] * BUCKETS
        counted = sum(buckets)
        found = []
        for share in wanted:
            left = share * counted
            middle = 0.0
            for index, count in enumerate(buckets):
                left -= count
                if count and left <= 0:
                    middle = _middle(index)
                    break
            found.append(middle / MICROSECONDS)
        return found


def _middle(index: int) -> float:
    """The middle of a bucket, in microseconds."""
    if index < 4:
        return float(index)
    power, quarter = index // 4 + 1, index % 4
    width = 1 << (power - 2)
    return (1 << power) + quarter * width + (width - 1) / 2
