"""Many timers that are mostly moved and seldom fire, such as the sessions of members. PURE."""

from collections.abc import Iterator
from heapq import heappop, heappush

from ottla.coordination.state_machine import TimerKey


class Timers:
    """Deadlines by key, in seconds of some clock.

    A heartbeat moves a deadline further away, which costs one write to a dict: the heap keeps the earlier entry, and
    finds out when its time comes that the deadline has moved.
    """

    __slots__ = ("_deadlines", "_heap", "_scheduled")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, float] = {}
        self._scheduled: dict[TimerKey, float] = {}
        """The earliest entry each key has in the heap."""
        self._heap: list[tuple[float, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, at: float) -> None:
        """Start a timer, or move it; `at` is its deadline in the unit of the clock that `due` gets."""
        self._deadlines[key] = at
        scheduled = self._scheduled.get(key)
        if scheduled is None or at < scheduled:
            self._schedule(key, at)

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        """Forget all timers."""
        self._deadlines.clear()
        self._scheduled.clear()
        self._heap.clear()

    def due(self, now: float) -> Iterator[TimerKey]:
        """Take out the keys whose time has come, earliest first; what is set meanwhile counts."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heappop(self._heap)
            if self._scheduled.get(key) != at:
                continue  # a later entry than another one of this key
            del self._scheduled[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline > now:
                self._schedule(key, deadline)
                continue
            del self._deadlines[key]
            yield key

    def next_look(self) -> float | None:
        """When to ask `due` again: not after the next deadline, perhaps before it."""
        return self._heap[0][0] if self._heap else None

    def _schedule(self, key: TimerKey, at: float) -> None:
        self._scheduled[key] = at
        heappush(self._heap, (at, key))
