"""When the time of a parked request is up.

A timer of the event loop for every request costs more than most requests do otherwise. Requests come with few different
timeouts, and those with the same one end in the order in which they came: each timeout has a queue, and one timer for
its first.
"""

import asyncio
from typing import Protocol


class Expiring(Protocol):
    """A parked request."""

    def expire(self) -> None:
        """Its time is up. May come after it was stopped in the same turn of the loop."""
        ...


class Timeouts:
    """The timeouts of a broker's parked requests; on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[float, _Queue] = {}

    def start(self, waiter: Expiring, seconds: float) -> None:
        """Expire `waiter` after so many seconds, unless it is stopped before."""
        queue = self._queues.get(seconds)
        ends_at = self._loop.time() + seconds
        if queue is None:
            queue = self._queues[seconds] = _Queue(self._loop.call_later(seconds, self._expire, seconds), ends_at)
        queue.ends_at[waiter] = ends_at

    def stop(self, waiter: Expiring, seconds: float) -> None:
        """Forget a waiter that was started with this timeout; nothing happens if its time was up already."""
        queue = self._queues.get(seconds)
        if queue is not None and queue.ends_at.pop(waiter, None) is not None and not queue.ends_at:
            queue.timer.cancel()
            del self._queues[seconds]

    def _expire(self, seconds: float) -> None:
        queue = self._queues.pop(seconds)
        now = max(self._loop.time(), queue.next_end)  # a loop may call a fraction of a millisecond early
        due = []
        for waiter, ends_at in queue.ends_at.items():
            if ends_at > now:
                queue.next_end = ends_at
                queue.timer = self._loop.call_later(ends_at - now, self._expire, seconds)
                self._queues[seconds] = queue
                break
            due.append(waiter)
        for waiter in due:
            del queue.ends_at[waiter]
            self._loop.call_soon(waiter.expire)


class _Queue:
    """The waiters with one timeout, in the order in which they end."""

    __slots__ = ("ends_at", "next_end", "timer")

    def __init__(self, timer: asyncio.TimerHandle, next_end: float) -> None:
        self.timer = timer
        self.next_end = next_end
        """When the timer was to call."""
        self.ends_at: dict[Expiring, float] = {}
