"""The clock seam: everything that asks for the time gets a `Clock` as an argument."""

import time
from typing import Final, Protocol

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Three times: one to compare with timestamps in records, one to measure how long something took, and one to judge
    what other machines may have done meanwhile."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch (wall clock; can jump)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def boottime(self) -> float:
        """Seconds on a clock that never goes back, and goes on while the machine sleeps."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)
