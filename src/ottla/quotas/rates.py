"""How fast something is used, and how long its user has to wait: buckets of tokens, and rates over a sliding window.

    tokens   |######----|          come back at the limit, up to a burst; what is used takes them
             |###                  owed when more is used than there is: so long the user waits

A burst is what Kafka's window of samples lets through at once, so that a client that was idle is throttled for the same
time as by Kafka (KIP-13, KIP-124, KIP-599). After a burst the limit is held exactly; Kafka's window, which forgets
whole samples, lets 76 to 110 % of it through within half a minute. See ADR 41.

Times are milliseconds on a clock that never goes back. Source: Kafka 4.3, `Rate`, `TokenBucket`, `QuotaUtils`.
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
    def ms(self) -> int:
        """How long it is."""
        return self.samples * self.sample_ms

    @property
    def burst_ms(self) -> int:
        """The time whose use may come at once: a window without its last sample, as in Kafka."""
        return max((self.samples - 1) * self.sample_ms, 1)

    @property
    def idle_after_ms(self) -> int:
        """After so long without use nothing is remembered, unless tokens are owed."""
        return self.ms + self.sample_ms


class TokenBucket:
    """What one entity may use of a quota, and uses."""

    __slots__ = ("_at_ms", "_burst_ms", "_most_owed_ms", "_tokens", "_used", "limit")

    def __init__(self, window: Window, burst_ms: float | None = None, most_owed_ms: float = inf) -> None:
        """`burst_ms`: the time whose use may come at once. No more is owed than comes back in `most_owed_ms`."""
        self.limit = inf
        """How many tokens come back each second."""
        self._burst_ms = window.burst_ms if burst_ms is None else burst_ms
        self._most_owed_ms = most_owed_ms
        self._tokens = 0.0
        self._at_ms = -inf
        self._used = Rate(window)

    def add(self, amount: float, now_ms: float) -> None:
        """Take tokens, whether they are there or not; a negative amount gives back what was not used after all."""
        least = -self.limit * self._most_owed_ms / 1000
        self._tokens = max(self.tokens(now_ms) - amount, least)
        self._at_ms = now_ms
        self._used.add(amount, now_ms)

    def tokens(self, now_ms: float) -> float:
        """How many there are; below 0, so many are owed."""
        most = self.limit * self._burst_ms / 1000
        if self._at_ms == -inf:
            return most
        return min(most, self._tokens + self.limit * (now_ms - self._at_ms) / 1000)

    def per_s(self, now_ms: float) -> float:
        """How much is used each second."""
        return self._used.per_s(now_ms)

    def excess_ms(self, now_ms: float) -> float:
        """How long it takes until none are owed; 0 if none are."""
        return max(0.0, -self.tokens(now_ms) / self.limit * 1000)


class Rate:
    """What is used each second, over a window; as Kafka measures it."""

    __slots__ = ("_samples", "_total", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()
        """Each with the time it began, the time something was last added, and how much in all."""
        self._total = 0.0

    def add(self, amount: float, now_ms: float) -> None:
        """So much is used."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window.sample_ms:
            self._expire(now_ms)
            samples.append([now_ms, now_ms, amount])
        else:
            newest = samples[-1]
            newest[1] = now_ms
            newest[2] += amount
        self._total += amount

    def per_s(self, now_ms: float) -> float:
        """How much is used each second: everything in the samples, by the time since the oldest began, which is never
        less than all but one of the samples."""
        self._expire(now_ms)
        samples, (count, sample_ms) = self._samples, self._window
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        missing = max(count - 1 - int(elapsed_ms / sample_ms), 0)
        return self._total / max(elapsed_ms + missing * sample_ms, 1) * 1000

    def _expire(self, now_ms: float) -> None:
        samples = self._samples
        while samples and samples[0][1] <= now_ms - self._window.ms:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0  # what rounding has left


def whole_ms(ms: float) -> int:
    """A time as an answer carries it."""
    return min(int(ms + 0.5), LONGEST_MS)
