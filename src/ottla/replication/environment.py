"""What partitions need to know of the broker they are on and of its cluster."""

from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.replication.decisions.in_sync import Proposal
    from ottla.replication.delayed import Waiting
    from ottla.replication.partition import Partition


REMEMBERED_CHANGES: Final = 4096


class LedChanges:
    """What happens to the partitions that this broker leads, as far as it concerns the fetches of their followers.

    A follower fetches thousands of partitions of which nearly all are idle. Its fetches look at those to which
    something has happened, and wait in one place for the next change.
    """

    __slots__ = ("_recent", "count", "waiters")

    def __init__(self) -> None:
        self.count = 0
        """Number of changes: of a log's ends, its high watermark, the leader and the replicas in sync."""
        self.waiters: Waiting = {}
        """Fetches of followers that wait for the next change."""
        self._recent: deque[Partition] = deque(maxlen=REMEMBERED_CHANGES)
        """The partition of each of the last changes."""

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
