"""Clusters that are broken on purpose, to see the simulation find it: a run that finds nothing means something then.

Each breakage replaces one decision of the brokers by the one that a careless implementation would take. `CASES` says
under which faults it shows, and how: `python -m tests.simulation --broken acknowledge-early`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from unittest.mock import patch

from ottla.cluster.cluster_metadata import ClusterMetadata
from ottla.replication.fetcher import LeaderFetcher, ReplicaFetchers
from ottla.replication.in_sync import InSyncReplicas
from ottla.replication.manager import ReplicaManager


@contextmanager
def acknowledge_early() -> Iterator[None]:
    """What the leader has on its own disk counts as committed: acks=all does not wait for anybody."""

    def committed(_in_sync: InSyncReplicas, own_end: Any, _now: float, _alive: Any) -> Any:
        return own_end

    with patch.object(InSyncReplicas, "committed", committed):
        yield


@contextmanager
def no_epoch_fencing() -> Iterator[None]:
    """Leaders do not look at the leader epoch that a fetch names (KIP-320): those of another one are served, too."""
    for_fetch = ReplicaManager.for_fetch

    def unfenced(replicas: ReplicaManager, topic: Any, partition: int, _epoch: int, **more: Any) -> Any:
        return for_fetch(replicas, topic, partition, -1, **more)

    with patch.object(ReplicaManager, "for_fetch", unfenced):
        yield


@contextmanager
def truncate_to_high_watermark() -> Iterator[None]:
    """A follower drops what is above its high watermark and copies on from there, as before KIP-101."""
    follow, request = ReplicaFetchers.follow, LeaderFetcher._request

    def truncated(fetchers: ReplicaFetchers, partition: Any, topic_id: Any) -> None:
        partition.log.truncate_to(partition.log.high_watermark)
        follow(fetchers, partition, topic_id)

    def without_epochs(fetcher: LeaderFetcher, *more: Any) -> Any:
        made = request(fetcher, *more)
        for topic in made.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
        return made

    with patch.object(ReplicaFetchers, "follow", truncated), patch.object(LeaderFetcher, "_request", without_epochs):
        yield


@contextmanager
def stale_controller() -> Iterator[None]:
    """Brokers do as any controller says, also one that has been succeeded."""

    def believe(metadata: ClusterMetadata, controller_epoch: int, _broker_epoch: int) -> None:
        metadata.controller_epoch = controller_epoch

    with patch.object(ClusterMetadata, "check_controller", believe):
        yield


class Breakage(Enum):
    """What is done to a cluster."""

    ACKNOWLEDGE_EARLY = "acknowledge-early"
    NO_EPOCH_FENCING = "no-epoch-fencing"
    TRUNCATE_TO_HIGH_WATERMARK = "truncate-to-high-watermark"
    STALE_CONTROLLER = "stale-controller"


@dataclass(frozen=True, slots=True)
class Case:
    """How a breakage is done, and under which faults it shows."""

    broken: Callable[[], AbstractContextManager[None]]
    faults: tuple[str, ...]
    finds: str
    """What the violation says, as a regular expression."""


BREAKAGES: Final[Mapping[Breakage, Case]] = {
    Breakage.ACKNOWLEDGE_EARLY: Case(acknowledge_early, (), "which is in sync, ends at"),
    Breakage.NO_EPOCH_FENCING: Case(no_epoch_fencing, (), ""),
    Breakage.TRUNCATE_TO_HIGH_WATERMARK: Case(truncate_to_high_watermark, (), "which is in sync, ends at"),
    Breakage.STALE_CONTROLLER: Case(stale_controller, ("depose", "kill", "elect"), ""),
}
