"""The clock seam: everything that asks for the time gets a `Clock` as an argument."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: one to compare with timestamps in records, one to measure how long something took."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch (wall clock; can jump)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
