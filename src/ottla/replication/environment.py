"""What partitions need to know of the broker they are on and of its cluster."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.replication.decisions.in_sync import Proposal
    from ottla.replication.partition import Partition


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
