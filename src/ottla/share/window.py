"""The records of a share partition that are under way, in runs of one status. PURE.

        start                                               end
          |                                                  |
    .....[ 4, 7 available 1 ][ 8, 8 acknowledged ][ 9, 20 acquired by m ]  ->  never acquired
                                                                 (offsets are inclusive)

Runs lie end to end, so every offset between start and end has a status, and neighbours of equal status are one run.
Source: KIP-932, "In-flight records".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """How it stands with a record; the numbers are Kafka's."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Not to be delivered again: rejected, delivered too often, or not there at all."""


FINISHED: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})

ALLOWED: Final = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset[RecordState](),
    RecordState.ARCHIVED: frozenset[RecordState](),
}

SETTLED: Final = 0


class Held(NamedTuple):
    """The member that holds a record, and the end of its lock (seconds of a monotonic clock)."""

    member: str
    until: float


class Status(NamedTuple):
    """The common status of every record of a run.

    `held` is set while a record is acquired. An acknowledgement counts once it is written: until then `write` is the
    number of that write, and `held` keeps the holder in case the write fails.
    """

    state: RecordState
    delivery_count: int = 0
    held: Held | None = None
    write: int = SETTLED

    def to(
        self, state: RecordState, *, delivery_count: int, held: Held | None = None, write: int = SETTLED
    ) -> "Status":
        """The status after a transition. Raises ValueError for one that is not in `ALLOWED`."""
        if state not in ALLOWED[self.state] or self.write != SETTLED:
            raise ValueError(f"a record cannot go from {self.state.name} to {state.name}")
        return Status(state, delivery_count, held, write)

    def renewed(self, until: float) -> "Status":
        """The status with a longer lock. Raises ValueError for a record that is not acquired."""
        if self.held is None or not self.is_held:
            raise ValueError(f"a record that is {self.state.name} is not acquired")
        return self._replace(held=self.held._replace(until=until))

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.write == SETTLED

    @property
    def is_held(self) -> bool:
        """Whether the record is acquired and not yet acknowledged."""
        return self.state is RecordState.ACQUIRED

    @property
    def is_finished(self) -> bool:
        """For good: what has still to be written is not."""
        return self.state in FINISHED and self.write == SETTLED


class Run(NamedTuple):
    """Records of one status; both offsets are inclusive."""

    first: int
    last: int
    status: Status


class Window:
    """The offsets from `start` to before `end`, each with a status."""

    __slots__ = ("_firsts", "_statuses", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._firsts: list[int] = []
        self._statuses: list[Status] = []

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def runs(self, first: int | None = None, last: int | None = None) -> Iterator[Run]:
        """The runs, clipped to [first, last]; what is changed meanwhile does not count."""
        low = self.start if first is None else max(first, self.start)
        high = self.end - 1 if last is None else min(last, self.end - 1)
        if low > high:
            return
        firsts, statuses = self._firsts, self._statuses
        begin = bisect_right(firsts, low) - 1
        after = bisect_right(firsts, high)
        firsts, statuses = firsts[begin:after], statuses[begin:after]
        for number, status in enumerate(statuses):
            run_first = firsts[number]
            run_last = firsts[number + 1] - 1 if number + 1 < len(firsts) else high
            yield Run(max(run_first, low), run_last, status)

    def status(self, offset: int) -> Status | None:
        """The status of one offset; None outside of the window."""
        if not self.start <= offset < self.end:
            return None
        return self._statuses[bisect_right(self._firsts, offset) - 1]

    def put(self, first: int, last: int, status: Status) -> None:
        """Give the offsets this status; `first` is in the window, or follows it at once. Raises ValueError if not."""
        if not self.start <= first <= self.end or last < first:
            raise ValueError(f"[{first}, {last}] does not belong to [{self.start}, {self.end})")
        firsts, statuses = self._firsts, self._statuses
        begin = bisect_left(firsts, first)
        after = bisect_right(firsts, last)
        new_firsts, new_statuses = [first], [status]
        if last + 1 < self.end and (after == len(firsts) or firsts[after] > last + 1):
            new_firsts.append(last + 1)  # the rest of the run in which the new one ends
            new_statuses.append(statuses[after - 1])
        firsts[begin:after] = new_firsts
        statuses[begin:after] = new_statuses
        self.end = max(self.end, last + 1)
        self._unite(begin, begin + len(new_firsts))

    def _unite(self, begin: int, after: int) -> None:
        """Make one run of neighbours of equal status, from the run before `begin` to the one at `after`."""
        firsts, statuses = self._firsts, self._statuses
        for number in range(min(after, len(firsts) - 1), max(begin - 1, 0), -1):
            if statuses[number] == statuses[number - 1]:
                del firsts[number], statuses[number]

    def move_start(self, offset: int) -> None:
        """Forget everything before `offset`, which may lie past the end."""
        if offset <= self.start:
            return
        self.start = offset
        self.end = max(self.end, offset)
        if self.start == self.end:
            self._firsts.clear()
            self._statuses.clear()
            return
        gone = bisect_right(self._firsts, offset) - 1
        del self._firsts[:gone], self._statuses[:gone]
        self._firsts[0] = offset
