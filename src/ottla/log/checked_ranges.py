"""Which parts of a file are known to be intact."""

from bisect import bisect_left, bisect_right
from threading import Lock


class CheckedRanges:
    """Ranges of a file whose batches are known to be intact. The one lock in the log: readers in threads add to it."""

    __slots__ = ("_ends", "_lock", "_starts")

    def __init__(self) -> None:
        self._lock = Lock()
        self._starts: list[int] = []
        self._ends: list[int] = []

    def covers(self, start: int, end: int) -> bool:
        """Whether all bytes from `start` up to `end` are known to be intact."""
        starts, ends = self._starts, self._ends
        found = bisect_right(starts, start) - 1
        return found >= 0 and found < len(ends) and ends[found] >= end

    def add(self, start: int, end: int) -> None:
        with self._lock:
            starts, ends = self._starts, self._ends
            if ends and ends[-1] == start:  # an append, nearly always
                ends[-1] = end
                return
            first = bisect_left(ends, start)
            after = bisect_right(starts, end)
            if first < after:
                start = min(start, starts[first])
                end = max(end, ends[after - 1])
            self._starts = [*starts[:first], start, *starts[after:]]
            self._ends = [*ends[:first], end, *ends[after:]]

    def clear(self) -> None:
        with self._lock:
            self._starts, self._ends = [], []
