"""Key-ordered delivery: of the records with one key, at most one is under way. PURE.

Records are learnt in the order of their offsets. Each key has a queue of its records that are not finished; only the
first of a queue may be delivered, and it stays the first while it is held, while it waits to be delivered again, and
until its acknowledgement is written. So a key never overtakes itself, whichever member holds its records. Records
without a key wait for no other record.

    a: 4 7 9      4 and 5 may be delivered now, and 6; 7 after 4 is finished, 8 after 5
    b: 5 8
    -: 6
"""

from collections import deque
from heapq import heappop, heappush


class KeyOrder:
    """The queues of one share partition. `known_until` is the first offset that has not been learnt."""

    __slots__ = ("_queues", "_ready", "_unfinished", "known_until")

    def __init__(self, known_until: int) -> None:
        self.known_until = known_until
        self._unfinished: dict[int, bytes | None] = {}
        self._queues: dict[bytes, deque[int]] = {}
        self._ready: list[int] = []
        """A heap of those that may be delivered; some may have been since, or be here twice."""

    def __len__(self) -> int:
        """How many records are not finished."""
        return len(self._unfinished)

    def add(self, offset: int, key: bytes | None) -> None:
        """A record that is not finished, at a higher offset than all before."""
        self._unfinished[offset] = key
        if key is not None:
            self._queues.setdefault(key, deque()).append(offset)
        self.offer(offset)

    def is_first(self, offset: int) -> bool:
        """Whether no earlier record of its key is unfinished. False for one that is finished itself."""
        if offset not in self._unfinished:
            return False
        key = self._unfinished[offset]
        return key is None or self._queues[key][0] == offset

    def offer(self, offset: int) -> None:
        """It may be delivered (again), if it is the first of its key."""
        if self.is_first(offset):
            heappush(self._ready, offset)

    def offer_all(self, first: int, last: int) -> None:
        """These may be delivered (again), as far as they are the first of their keys."""
        for offset in self._within(first, last):
            self.offer(offset)

    def finish(self, first: int, last: int) -> None:
        """These are done with, and the next of their keys may be delivered."""
        for offset in self._within(first, last):
            self._finish(offset)

    def finish_before(self, end: int) -> None:
        """All before `end` are done with: the log does not have them any more."""
        self.finish(0, end - 1)
        self.known_until = max(self.known_until, end)

    def _within(self, first: int, last: int) -> list[int]:
        """The unfinished offsets between these two, in order. Cost is bounded by the known offsets, since compaction
        leaves
        gaps of millions of offsets."""
        unfinished = self._unfinished
        if last - first < len(unfinished):
            return [offset for offset in range(first, last + 1) if offset in unfinished]
        return sorted(offset for offset in unfinished if first <= offset <= last)

    def _finish(self, offset: int) -> None:
        key = self._unfinished.pop(offset)
        if key is None:
            return
        queue = self._queues[key]
        was_first = queue[0] == offset
        queue.remove(offset)
        if not queue:
            del self._queues[key]
        elif was_first:
            heappush(self._ready, queue[0])

    def take_ready(self) -> int | None:
        """The lowest offset offered, taken out; None if there is none. It may have been delivered meanwhile."""
        return heappop(self._ready) if self._ready else None
