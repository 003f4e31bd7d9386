"""Mean, maximum and rate of the last minute, as Kafka's own metrics have them.

   before          now
|-----------|------------|          periods of half a minute; what is older does not count
                         ^ read
"""

from typing import Final, NamedTuple

PERIOD_S: Final = 30.0
SHORTEST_S: Final = 1.0
"""Rates are over at least this long: a first batch is no million a second."""


class _Period(NamedTuple):
    began_s: float
    values: int
    total: float
    largest: float


class Window:
    """Values that one thread adds; any thread may read. `now_s` is of a clock that never goes back."""

    __slots__ = ("_before", "_now", "count", "total")

    def __init__(self, now_s: float) -> None:
        self.count = 0
        """Values since the start."""
        self.total = 0.0
        """Their sum."""
        self._now = self._before = _Period(now_s, 0, 0.0, 0.0)

    def add(self, value: float, now_s: float) -> None:
        """Count a value, zero or more."""
        self.count += 1
        self.total += value
        began_s, count, total, largest = self._now
        if now_s - began_s >= PERIOD_S:
            self._before = self._now
            self._now = _Period(now_s, 1, value, value)
        else:
            self._now = _Period(began_s, count + 1, total + value, max(largest, value))

    def mean(self, now_s: float) -> float:
        """The mean of the values; 0 without any."""
        periods = self._periods(now_s)
        count = sum(each.values for each in periods)
        return sum(each.total for each in periods) / count if count else 0.0

    def largest(self, now_s: float) -> float:
        """The largest value; 0 without any."""
        return max((each.largest for each in self._periods(now_s)), default=0.0)

    def rate(self, now_s: float) -> float:
        """The sum of the values, per second."""
        periods = self._periods(now_s)
        if not periods:
            return 0.0
        return sum(each.total for each in periods) / max(now_s - periods[0].began_s, SHORTEST_S)

    def _periods(self, now_s: float) -> list[_Period]:
        return [each for each in (self._before, self._now) if each.values and now_s - each.began_s < 2 * PERIOD_S]
