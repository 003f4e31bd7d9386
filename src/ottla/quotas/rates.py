"""How fast something is used: a rate over a sliding window (KIP-13, KIP-124), and a bucket of tokens (KIP-599).

    samples   |   |###|  #|   |####|## |     one for each second in which something happened
              ^ oldest                 ^ now
    rate = everything in the samples / time since the oldest began, but never less than all but one of the seconds

Times are milliseconds on a clock that never goes back. Both forget: after `idle_after_ms` without use, a new one is
the same. Source: Kafka 4.3, `Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils`.
"""

from collections import deque
from math import inf
from typing import Final, NamedTuple

LONGEST_MS: Final = 2**31 - 1
"""Answers say in 32 bits how long they throttle."""


class Window(NamedTuple):
    """How long something is remembered: `samples` of `sample_ms` each."""

    samples: int
    sample_ms: int

    @property
    def idle_after_ms(self) -> int:
        """After so long without use nothing is remembered."""
        return (self.samples + 1) * self.sample_ms


class Rate:
    """What is used each second, over a window."""

    __slots__ = ("_samples", "_total", "_window", "limit")

    def __init__(self, window: Window) -> None:
        self.limit = inf
        """How much may be used each second."""
        self._window = window
        self._samples: deque[list[float]] = deque()
        """Each with the time it began, the time something was last added, and how much in all."""
        self._total = 0.0

    def add(self, amount: float, now_ms: float) -> None:
        """So much is used; a negative amount takes back what was not used after all."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window.sample_ms:
            samples.append([now_ms, now_ms, amount])
        else:
            newest = samples[-1]
            newest[1] = now_ms
            newest[2] += amount
        self._total += amount

    def per_s(self, now_ms: float) -> float:
        """How much is used each second."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self._total / elapsed_ms * 1000

    def excess_ms(self, now_ms: float) -> float:
        """How long nothing may be used for the rate to be back at the limit; 0 if it is not above."""
        elapsed_ms, limit = self._elapsed_ms(now_ms), self.limit
        rate = self._total / elapsed_ms * 1000
        return (rate - limit) / limit * elapsed_ms if rate > limit else 0.0

    def _elapsed_ms(self, now_ms: float) -> float:
        samples, (count, sample_ms) = self._samples, self._window
        expired = now_ms - count * sample_ms
        while samples and samples[0][1] <= expired:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0  # what rounding has left
            return max((count - 1) * sample_ms, 1)
        elapsed_ms = now_ms - samples[0][0]
        missing = count - 1 - int(elapsed_ms / sample_ms)
        return max(elapsed_ms + max(missing, 0) * sample_ms, 1)


class TokenBucket:
    """Tokens that come back at a rate; a burst may take as many as come in a whole window, once even more."""

    __slots__ = ("_at_ms", "_tokens", "_used", "_window", "limit")

    def __init__(self, window: Window) -> None:
        self.limit = inf
        """How many tokens come back each second."""
        self._window = window
        self._tokens = 0.0
        self._at_ms = -inf
        self._used = Rate(window)

    def add(self, amount: float, now_ms: float) -> None:
        """Take tokens, whether they are there or not."""
        self._tokens = self.tokens(now_ms) - amount
        self._at_ms = now_ms
        self._used.add(amount, now_ms)

    def tokens(self, now_ms: float) -> float:
        """How many there are; below 0, so many are owed."""
        most = self._window.samples * self._window.sample_ms / 1000 * self.limit
        if self._at_ms == -inf:
            return most
        return min(most, self._tokens + self.limit * (now_ms - self._at_ms) / 1000)

    def per_s(self, now_ms: float) -> float:
        """How many are taken each second."""
        return self._used.per_s(now_ms)

    def excess_ms(self, now_ms: float) -> float:
        """How long it takes until none are owed; 0 if none are."""
        return max(0.0, -self.tokens(now_ms) / self.limit * 1000)


def whole_ms(ms: float) -> int:
    """A time as an answer carries it."""
    return min(int(ms + 0.5), LONGEST_MS)
