"""When the transaction of a source task ends: by time, by count, and not where its records would come again.

Without transactions it is the moment at which positions are kept.
Source: KIP-618, `transaction.boundary`.
"""

import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from ottla.connect.records import Progress, SourceRecord
from ottla.connect.runtime.connector_config import SourceRuntimeSettings

_POLL_TRANSACTION_S: Final = 0.05
"""Minimum time for which a transaction collects records while more keep coming, unless configured."""
_COMMITS_TAKE: Final = 6
"""It collects for so many times as long as the last commit took, so that commits cost no more than a seventh."""
_LONGEST_TRANSACTION_S: Final = 0.5
_MOST_RECORDS: Final = 20_000
"""In one transaction: what has to be repeated, and what readers wait for."""
_IDLE_COMMIT_S: Final = 0.1
"""Without transactions: how often positions are kept at most when nothing more is there."""


class Phase(Enum):
    """How the records taken since the last commit relate to the positions among them."""

    AT_POSITION = auto()
    """The last of them has a position: the source goes on after it."""
    COMMITTABLE = auto()
    """They wait for no position: the source gives none, or nothing can be aborted."""
    BEYOND_POSITION = auto()
    """The source would send the last of them again, so they wait for a position, and are aborted without one."""


class TransactionBoundary:
    """The records that one source task has taken since its last commit.

    Args:
        flush_s: The worker's `offset.flush.interval.ms`, in seconds.
        transactional: Whether an abort takes records back.
        longest_s: Time in seconds after which the brokers abort a transaction.
        gives_positions: Whether the source has given a position before.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        runtime: SourceRuntimeSettings,
        *,
        flush_s: float,
        transactional: bool,
        longest_s: float,
        gives_positions: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.phase = Phase.AT_POSITION
        self._transactional, self._gives_positions = transactional, gives_positions
        self._longest_s, self._clock = longest_s, clock
        self._kind = runtime.transaction_boundary.lower()
        interval_ms = runtime.transaction_boundary_interval_ms
        self._adapts = False
        if not transactional:
            self._length_s, self._idle_s = flush_s, _IDLE_COMMIT_S
        elif self._kind == "interval":
            self._length_s = self._idle_s = flush_s if interval_ms is None else interval_ms / 1000
        else:
            self._length_s, self._idle_s = _POLL_TRANSACTION_S, 0.0
            self._adapts = True
        if transactional:
            self._length_s, self._idle_s = min(self._length_s, longest_s / 2), min(self._idle_s, longest_s / 2)
        self._taken, self._since = 0, clock()
        self._began = self._since
        self._is_list_over = False

    def taken(self, items: Sequence[SourceRecord | Progress], *, together: bool) -> None:
        """Add records and moves, at least one; `together`: the source yielded them as one list."""
        if not self._taken:
            self._began = self._clock()
            self._since = max(self._since, self._began - self._idle_s)
        self._taken += len(items)
        self._is_list_over = together
        self._gives_positions = self._gives_positions or any(each.position is not None for each in items)
        if items[-1].position is not None:
            self.phase = Phase.AT_POSITION
        elif self._gives_positions and self._transactional:
            self.phase = Phase.BEYOND_POSITION
        else:
            self.phase = Phase.COMMITTABLE

    def over(self) -> bool:
        """Return whether the transaction is to end: enough has been added, and none of it would come again."""
        if self.phase is Phase.BEYOND_POSITION:
            return False
        if self._kind == "connector" and self._is_list_over:
            return True
        return self._taken >= _MOST_RECORDS or self._clock() - self._since >= self._length_s

    def expiring(self) -> bool:
        """Return whether records wait for a position for half of the time after which the brokers abort them."""
        waits = self.phase is Phase.BEYOND_POSITION and self._taken > 0
        return waits and self._clock() - self._began >= self._longest_s / 2

    def idle(self, *, done: bool) -> bool:
        """Return whether to end now that nothing more is there; `done`: nor will be."""
        return self._taken > 0 and (done or self._clock() - self._since >= self._idle_s)

    def committed(self, took_s: float) -> None:
        """Begin anew, after a commit that took so long."""
        self.phase = Phase.AT_POSITION
        self._taken, self._since = 0, self._clock()
        if self._adapts:
            self._length_s = min(max(_POLL_TRANSACTION_S, _COMMITS_TAKE * took_s), _LONGEST_TRANSACTION_S)
