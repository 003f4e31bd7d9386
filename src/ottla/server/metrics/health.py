"""Whether a broker lives, and whether it serves clients; with the reasons, and what to do about them."""

from enum import Enum
from typing import TYPE_CHECKING

from ottla.metrics.health import Health

if TYPE_CHECKING:
    from ottla.server.context import Services


class Phase(Enum):
    """The life of a broker, or of a controller alone."""

    STARTING = "the broker is starting: it opens its log directories and recovers logs that were not closed cleanly"
    SERVING = "the broker serves clients"
    CONTROLLING = "the controller takes part in the quorum"
    STOPPING = "the broker is stopping"


def look_at(phase: Phase, services: "Services | None") -> Health:
    """The health of a broker in this phase; on the loop's thread."""
    reasons: list[str] = []
    warnings: list[str] = []
    if phase is not Phase.SERVING or services is None:
        return Health([phase.value], warnings)
    cluster, replicas = services.cluster, services.replicas
    if cluster is not None and not cluster.leadership_lease.holds():
        reasons.append(
            f"the broker's session with {cluster.coordinator} is lost or in doubt, so that it leads nothing for sure: "
            f"see whether {cluster.coordinator} runs"
        )
    if not services.metadata.is_known:
        reasons.append(
            "no controller has sent the cluster's metadata yet: see whether another broker is the controller"
        )
    for directory in replicas.directories.directories:
        if directory not in replicas.directories.online:
            warnings.append(f"log directory {directory.path} has failed, and what is in it is not served: see the log")
        elif directory.is_full:
            warnings.append(f"log directory {directory.path} is full: make room, or move partitions elsewhere")
    short = sum(partition.leading and len(partition.isr) < partition.min_in_sync for partition in replicas.partitions())
    if short:
        warnings.append(
            f"{short} partitions have fewer replicas in sync than min.insync.replicas, and refuse acks=all: "
            "start the brokers that are down"
        )
    return Health(reasons, warnings)
