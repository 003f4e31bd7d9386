"""What partitions need to know of the broker they are on and of its cluster."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.replication.decisions.in_sync import Proposal
    from ottla.replication.delayed import Waiting
    from ottla.replication.partition import Partition


class LedChanges:
    """What happens to the partitions that this broker leads, as far as it concerns the fetches of their followers.

    A follower fetches thousands of partitions of which nearly all are idle. While nothing happens to any of them, its
    fetches look at none of them, and wait in one place.
    """

    __slots__ = ("count", "waiters")

    def __init__(self) -> None:
        self.count = 0
        """Number of changes: of a log's ends, its high watermark, the leader and the replicas in sync."""
        self.waiters: Waiting = {}
        """Fetches of followers to which nothing has happened yet."""


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
