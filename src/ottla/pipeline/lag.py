"""How far a query is behind its topics, in records and in seconds.

The latest offsets are asked for every few seconds and remembered. A query that has read up to an offset is as many
seconds behind as have passed since the topic's end was there: no record has to be read, and timestamps that producers
make up do not matter. What was in the topic before it was first looked at is at least as old as that. PURE.
"""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Offsets = dict[tuple[str, int], int]
"""By topic and partition."""

_SAMPLES: Final = 2_000


class Lag(NamedTuple):
    """`at_least`: the records that wait are older than what is known of their topic."""

    records: int
    seconds: float
    at_least: bool


@dataclass(slots=True)
class LagHistory:
    """The ends of partitions over time; at most so many of each."""

    most: int = _SAMPLES
    _times: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    _ends: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def add(self, ends: Mapping[tuple[str, int], int], now: float) -> None:
        """The ends of partitions as they are now."""
        for partition, end in ends.items():
            times = self._times.setdefault(partition, [])
            known = self._ends.setdefault(partition, [])
            if known and known[-1] == end:
                times[-1] = now  # it stood still: this is when it was last seen there
                continue
            if known and end < known[-1]:  # the topic was made anew, or lost its end
                times.clear()
                known.clear()
            times.append(now)
            known.append(end)
            if len(times) > self.most:  # older ones become rarer, not forgotten
                del times[1 : self.most // 2 : 2]
                del known[1 : self.most // 2 : 2]

    def lag(self, position: Mapping[tuple[str, int], int], now: float) -> Lag | None:
        """The lag of a query that has read up to `position`; None while none of its partitions is known."""
        records, seconds, at_least, known_any = 0, 0.0, False, False
        for partition, offset in position.items():
            ends = self._ends.get(partition)
            if not ends:
                continue
            known_any = True
            behind = ends[-1] - offset
            if behind <= 0:
                continue
            records += behind
            # the last sample at which the end was not beyond what has been read
            place = bisect.bisect_right(ends, offset) - 1
            since = self._times[partition][max(place, 0)]
            if now - since >= seconds:
                seconds, at_least = now - since, place < 0
        return Lag(records, round(seconds, 1), at_least) if known_any else None
