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

from ottla.cluster.commands import SetPartitions
from ottla.cluster.elections import Outages
from ottla.cluster.image import MetadataImage
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.log import retention
from ottla.log.cleaner_map import OffsetMap
from ottla.log.directories import LogDirectories
from ottla.log.retention import breached_count
from ottla.metadata import decisions
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.registered_brokers import RegisteredBrokers
from ottla.replication.compaction import Compaction
from ottla.replication.decisions.in_sync import InSyncReplicas
from ottla.replication.fetcher import LeaderFetcher
from ottla.replication.fetchers import ReplicaFetchers
from ottla.replication.maintenance import Maintenance
from ottla.replication.manager import ReplicaManager
from ottla.server import fetch_attempt
from tests.simulation.broken_quorum import (
    early_unfencing,
    endless_lease,
    full_as_lost,
    removed_voters_wait,
    stale_alter_partition,
    uncommitted_shrink,
)
from tests.simulation.quorum import broken as of_quorums


@contextmanager
def acknowledge_early() -> Iterator[None]:
    """What the leader has on its own disk counts as committed: acks=all does not wait for anybody."""

    def committed(_in_sync: InSyncReplicas, own_end: Any, _now: float, _alive: Any) -> Any:
        return own_end

    with patch.object(InSyncReplicas, "committed", committed):
        yield


@contextmanager
def no_epoch_fencing() -> Iterator[None]:
    """Nobody looks at leader epochs: not the leader at those that a fetch names (KIP-320, KIP-595), whatever the log of
    the follower holds, and not the controller at that of a leader that changes in-sync replicas."""
    for_fetch = ReplicaManager.for_fetch

    def unfenced(replicas: ReplicaManager, topic: Any, partition: int, _epoch: int, **more: Any) -> Any:
        return for_fetch(replicas, topic, partition, -1, **more)

    def believe(image: MetadataImage, outages: Outages, change: IsrChange) -> SetPartitions:
        partition = image.topics_by_id[change.topic_id].partitions[change.partition]
        change = change._replace(leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
        return plan_isr_change(image, outages, change)

    with (
        patch.object(ReplicaManager, "for_fetch", unfenced),
        patch.object(fetch_attempt.FetchAttempt, "_diverges", lambda *_: False),
        patch.object(decisions, "plan_isr_change", believe),
    ):
        yield


@contextmanager
def truncate_to_high_watermark() -> Iterator[None]:
    """A follower drops what is above its high watermark and copies on from there, as before KIP-101."""
    follow, request = ReplicaFetchers.follow, LeaderFetcher._next_request

    def truncated(fetchers: ReplicaFetchers, partition: Any, topic_id: Any) -> None:
        partition.log.truncate_to(partition.log.high_watermark)
        follow(fetchers, partition, topic_id)

    def without_epochs(fetcher: LeaderFetcher, *more: Any) -> Any:
        made, rest_s = request(fetcher, *more)
        for topic in () if made is None else made.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1
        return made, rest_s

    with (
        patch.object(ReplicaFetchers, "follow", truncated),
        patch.object(LeaderFetcher, "_next_request", without_epochs),
    ):
        yield


@contextmanager
def stale_controller() -> Iterator[None]:
    """Brokers do as any controller says, also one that has been succeeded."""

    def believe(metadata: ClusterMetadata, controller_epoch: int, _broker_epoch: int) -> None:
        metadata.controller_epoch = controller_epoch

    with (
        patch.object(ClusterMetadata, "check_controller", believe),
        patch.object(RegisteredBrokers, "backs", lambda *_: True),
        patch.object(RegisteredBrokers, "stale", lambda *_: None),
    ):
        yield


@contextmanager
def trust_any_disk() -> Iterator[None]:
    """Nobody asks whether a broker's disk is the one it had: what is missing is made anew, empty, and may lead."""
    with patch.object(LogDirectories, "compare", lambda *_: None):
        yield


@contextmanager
def idle_followers() -> Iterator[None]:
    """Retention and compaction are the affair of who leads."""
    partitions = ReplicaManager.partitions

    def led(replicas: ReplicaManager) -> Any:
        return [partition for partition in partitions(replicas) if partition.leading]

    with (
        patch.object(Maintenance, "apply_retention", _with_partitions(Maintenance.apply_retention, led)),
        patch.object(Compaction, "_candidates", _with_partitions(Compaction._candidates, led)),
    ):
        yield


def _with_partitions(work: Any, partitions: Any) -> Any:
    """A method of what has `_replicas`, for which those have other partitions."""

    async def changed(self: Any) -> Any:
        replicas = self._replicas
        self._replicas = _Replicas(replicas, partitions)
        try:
            return await work(self)
        finally:
            self._replicas = replicas

    return changed


class _Replicas:
    def __init__(self, replicas: ReplicaManager, partitions: Any) -> None:
        self._replicas, self._partitions = replicas, partitions

    def partitions(self) -> Any:
        return self._partitions(self._replicas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)


@contextmanager
def delete_uncommitted() -> Iterator[None]:
    """Retention does not look at the high watermark."""

    def everything(segments: Any, config: Any, **more: Any) -> int:
        return breached_count(segments, config, **{**more, "high_watermark": more["log_end_offset"]})

    with patch.object(retention, "breached_count", everything):
        yield


@contextmanager
def compact_the_newest() -> Iterator[None]:
    """Compaction takes the last record of a segment's last key for superseded."""
    newest = OffsetMap.newest

    def all_but_the_last(known: OffsetMap, records: Any, base_offset: int) -> Any:
        return newest(known, records, base_offset)[:-1]

    with patch.object(OffsetMap, "newest", all_but_the_last):
        yield


class Breakage(Enum):
    """What is done to a cluster."""

    ACKNOWLEDGE_EARLY = "acknowledge-early"
    NO_EPOCH_FENCING = "no-epoch-fencing"
    TRUNCATE_TO_HIGH_WATERMARK = "truncate-to-high-watermark"
    STALE_CONTROLLER = "stale-controller"
    TRUST_ANY_DISK = "trust-any-disk"
    IDLE_FOLLOWERS = "idle-followers"
    DELETE_UNCOMMITTED = "delete-uncommitted"
    COMPACT_THE_NEWEST = "compact-the-newest"
    COMMIT_WITHOUT_QUORUM = "commit-without-quorum"
    ENDLESS_LEASE = "endless-lease"
    EARLY_UNFENCING = "early-unfencing"
    STALE_ALTER_PARTITION = "stale-alter-partition"
    UNCOMMITTED_SHRINK = "uncommitted-shrink"
    FULL_AS_LOST = "full-as-lost"
    REMOVED_VOTERS_WAIT = "removed-voters-wait"


@dataclass(frozen=True, slots=True)
class Case:
    """How a breakage is done, and under which faults it shows."""

    broken: Callable[[], AbstractContextManager[None]]
    faults: tuple[str, ...]
    """None: the seed decides."""
    finds: str
    """What the violation says, as a regular expression: a cluster that only does not come to rest is not found out."""
    seed: int
    """One that finds it; another code makes other runs of the same seeds, so that it may be another one by now."""
    quorum: bool = False
    """Does it take a quorum of controllers?"""


IN_SYNC_LACKS: Final = "which is in sync, ends at"
THROWN_AWAY: Final = "throw away what was committed|which is in sync, ends at"
DIFFERENT: Final = "committed there is|appends another batch"

BREAKAGES: Final[Mapping[Breakage, Case]] = {
    Breakage.ACKNOWLEDGE_EARLY: Case(acknowledge_early, (), IN_SYNC_LACKS, 0),
    Breakage.NO_EPOCH_FENCING: Case(no_epoch_fencing, (), DIFFERENT, 10),
    Breakage.TRUNCATE_TO_HIGH_WATERMARK: Case(truncate_to_high_watermark, (), THROWN_AWAY, 5),
    Breakage.STALE_CONTROLLER: Case(stale_controller, ("depose", "kill", "elect"), "after what that of epoch", 3),
    Breakage.TRUST_ANY_DISK: Case(trust_any_disk, ("replace disk", "kill"), THROWN_AWAY, 0),
    Breakage.IDLE_FOLLOWERS: Case(idle_followers, ("kill", "stop", "cut"), "keeps too much of", 6),
    Breakage.DELETE_UNCOMMITTED: Case(delete_uncommitted, (), "has deleted what is not committed|has nothing from", 23),
    Breakage.COMPACT_THE_NEWEST: Case(compact_the_newest, ("kill", "elect"), "compacted the newest record of", 0),
    Breakage.COMMIT_WITHOUT_QUORUM: Case(
        of_quorums.BREAKAGES[of_quorums.Breakage.COMMIT_WITHOUT_QUORUM].broken,
        ("cut", "power", "kill"),
        "metadata log: .* committed",
        1,
        quorum=True,
    ),
    Breakage.ENDLESS_LEASE: Case(
        endless_lease,
        ("from controller", "pause", "cut"),
        "is fenced, and its lease is not over",
        0,
        quorum=True,
    ),
    Breakage.EARLY_UNFENCING: Case(
        early_unfencing,
        ("kill", "stop", "power"),
        "is unfenced, and has read up to|is fenced, and its lease is not over",
        3,
        quorum=True,
    ),
    Breakage.STALE_ALTER_PARTITION: Case(
        stale_alter_partition, ("cut", "from controller", "elect", "storm"), IN_SYNC_LACKS, 1, quorum=True
    ),
    Breakage.UNCOMMITTED_SHRINK: Case(
        uncommitted_shrink, ("from controller", "pause", "cut"), IN_SYNC_LACKS, 0, quorum=True
    ),
    Breakage.FULL_AS_LOST: Case(full_as_lost, (), THROWN_AWAY, 588, quorum=True),
    Breakage.REMOVED_VOTERS_WAIT: Case(removed_voters_wait, (), "does not heal", 2604, quorum=True),
}
