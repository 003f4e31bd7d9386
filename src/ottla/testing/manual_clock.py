"""A clock that stands still until a test advances it."""

from typing import Final

_START_MS: Final = 1_700_000_000_000


class ManualClock:
    """An `ottla.clock.Clock` for tests: both of its times move only by `advance`, the wall clock also by `jump_to`.

        clock = ManualClock()
        clock.advance(seconds=2)
        assert clock.now_ms() == ManualClock().now_ms() + 2000

    It begins at 2023-11-14T22:13:20Z by default.
    """

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self._wall_ms

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        return self._monotonic_ms / 1000

    def boottime(self) -> float:
        """The same: this machine never sleeps."""
        return self._monotonic_ms / 1000

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Moves both times on. Raises ValueError for a step back."""
        step_ms = round(seconds * 1000) + ms
        if step_ms < 0:
            raise ValueError(f"time does not go back by {-step_ms} ms; jump_to() sets the wall clock")
        self._wall_ms += step_ms
        self._monotonic_ms += step_ms

    def jump_to(self, now_ms: int) -> None:
        """Sets the wall clock alone, also back, as an operator or NTP would."""
        self._wall_ms = now_ms
