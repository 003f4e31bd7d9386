"""What partitions need to know of the broker they are on and of its cluster."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.replication.decisions.in_sync import Proposal
    from ottla.replication.delayed import Waiting
    from ottla.replication.partition import Partition


REMEMBERED_CHANGES: Final = 4096
MANY_FOLLOWERS: Final = 1000
"""Brokers, whose places are kept though none of their fetches waits."""


def _never() -> bool:
    return False


class LedChanges:
    """What happens to the partitions that this broker leads, as far as it concerns the fetches of their followers.

    A follower fetches thousands of partitions of which nearly all are idle. Its fetches look at those to which
    something has happened, and wait in one place, that of their broker, for the next change.
    """

    __slots__ = ("_recent", "_waiters", "count")

    def __init__(self) -> None:
        self.count = 0
        """Number of changes: of a log's ends, its high watermark, the leader and the replicas in sync."""
        self._waiters: dict[int, Waiting] = {}
        self._recent: deque[Partition] = deque(maxlen=REMEMBERED_CHANGES)
        """The partition of each of the last changes."""

    def waiting(self, replica: int) -> "Waiting":
        """Where the fetches of a follower wait for the next change of a partition that it has, too."""
        if len(self._waiters) > MANY_FOLLOWERS:
            self._waiters = {broker_id: waiting for broker_id, waiting in self._waiters.items() if waiting}
        return self._waiters.setdefault(replica, {})

    def of_followers(self, replicas: Iterable[int]) -> "Iterator[Waiting]":
        """Where fetches of these brokers wait, if any does."""
        for replica in replicas:
            waiting = self._waiters.get(replica)
            if waiting:
                yield waiting

    def note(self, partition: "Partition") -> None:
        """Count a change of one partition."""
        self.count += 1
        self._recent.append(partition)

    def note_any(self) -> None:
        """Count a change that may concern any partition."""
        self.count += 1
        self._recent.clear()

    def since(self, count: int) -> "Collection[Partition] | None":
        """The partitions that have changed since there were `count` changes; None if that is not known any more."""
        missed = self.count - count
        return None if missed > len(self._recent) else set(islice(reversed(self._recent), missed))


class ReplicaEnvironment(NamedTuple):
    """The same for all partitions of a broker."""

    broker_id: BrokerId
    now: Callable[[], float]
    """Seconds, on a clock that never goes back."""
    lag_s: float
    """replica.lag.time.max.ms"""
    alive: Callable[[], Collection[BrokerId]]
    """The brokers that are, and are not about to stop."""
    propose: "Callable[[Partition, Proposal], None]"
    """Have the controller change a partition's in-sync replicas."""
    led_changes: LedChanges
    in_sync_sets_are_shown: Callable[[], bool] = _never
    """Whether the metadata shows a leader its in-sync set after each change of it."""
