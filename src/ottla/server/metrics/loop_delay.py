"""How late the event loop comes to what is due: everything that a client waits for waits at least as long."""

import asyncio
from typing import Final

from ottla.metrics.histogram import Durations

INTERVAL_S: Final = 0.1


class LoopDelay:
    """Sets a timer again and again, and counts how late it is. `close` it on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.durations = Durations()
        self._loop = loop
        self._due = loop.time() + INTERVAL_S
        self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.durations.add(now - self._due)
        self._due = now + INTERVAL_S
        self._timer = self._loop.call_at(self._due, self._look)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
