"""Figures over time of what people look at: bounded, in memory, and sampled only for what was looked at lately.

A figure is sampled whenever a page asks for it, and slowly for an hour after. Nothing is sampled that nobody has
looked at: a cluster of 5,000 groups costs what its viewers look at.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, NamedTuple

from ottla.client.partition import Partition
from ottla.console.plots import Sample
from ottla.pipeline.lag import Lag, LagHistory
from ottla.tasks import supervised

SAMPLES: Final = 400
"""Samples of a series; then older ones become rarer."""
MOST_FOLLOWED: Final = 20
FOLLOWED_S: Final = 3_600.0
EVERY_S: Final = 30.0
_ENDS_IN_ALL: Final = 10_000
"""Offsets that the history of one group may keep, over all its partitions: some 2 MB."""
_MOST_PARTITIONS: Final = 2_000
"""A group of more has its lag in records only."""
_FEWEST_PARTITIONS: Final = 5


class Series:
    """One figure over time: the newest samples in full, older ones ever rarer."""

    def __init__(self, most: int = SAMPLES) -> None:
        self._most = most
        self.samples: list[Sample] = []

    def add(self, at: float, value: float) -> None:
        """A sample that is newer than those before; one of a clock that went back is left out."""
        if self.samples and at <= self.samples[-1].at:
            return
        self.samples.append(Sample(at, value))
        if len(self.samples) > self._most:
            del self.samples[1 : self._most // 2 : 2]


class Trend:
    """Something over time: the lag of a group, the size of a topic, or the records of a cluster."""

    def __init__(self) -> None:
        self.records = Series()
        self.seconds = Series()
        self.bytes = Series()
        self.lag: Lag | None = None
        self._history: LagHistory | None = None

    def add(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int], now: float) -> None:
        """What the group has committed, and where its partitions end for readers."""
        known: dict[tuple[str, int], int] = {each: end for each, end in ends.items() if each in positions}
        if len(known) > _MOST_PARTITIONS:
            self.records.add(now, sum(max(end - positions[Partition(*each)], 0) for each, end in known.items()))
            return
        if self._history is None:
            self._history = LagHistory(most=_ENDS_IN_ALL // max(len(known), _FEWEST_PARTITIONS))
        self._history.add(known, now)
        self.lag = self._history.lag({each: at for each, at in positions.items() if each in known}, now)
        if self.lag is not None:
            self.records.add(now, self.lag.records)
            self.seconds.add(now, self.lag.seconds)


class _Followed(NamedTuple):
    until: float
    again: Callable[[], Awaitable[object]]
    kept: Trend


class Trends:
    """The trends of what was looked at lately, by key. On one event loop; `close` it."""

    def __init__(
        self, clock: Callable[[], float] = time.time, every_s: float = EVERY_S, most: int = MOST_FOLLOWED
    ) -> None:
        self._clock = clock
        self._every_s = every_s
        self._most = most
        self._followed: dict[Hashable, _Followed] = {}
        self._task: asyncio.Task[None] | None = None

    def now(self) -> float:
        """The time of samples, in seconds since 1970."""
        return self._clock()

    def of(self, key: Hashable) -> Trend:
        """The trend that is followed under a key; an empty one that nobody keeps, if none is."""
        followed = self._followed.get(key)
        return Trend() if followed is None else followed.kept

    def follow(self, key: Hashable, again: Callable[[], Awaitable[object]]) -> None:
        """Somebody looks at this: have it sampled for an hour, by asking again. The one looked at longest ago goes."""
        known = self._followed.pop(key, None)
        kept = Trend() if known is None else known.kept
        self._followed[key] = _Followed(self._clock() + FOLLOWED_S, again, kept)
        while len(self._followed) > self._most:
            del self._followed[next(iter(self._followed))]
        if self._task is None or self._task.done():
            self._task = supervised(asyncio.get_running_loop(), self._sample(), "figures of the console")

    async def _sample(self) -> None:
        while self._followed:
            await asyncio.sleep(self._every_s)
            for key, followed in list(self._followed.items()):
                if followed.until <= self._clock():
                    self._followed.pop(key, None)
                else:
                    with contextlib.suppress(Exception):  # the page reports it
                        await followed.again()

    def close(self) -> None:
        """Sample nothing any longer."""
        if self._task is not None:
            self._task.cancel()
        self._followed.clear()
