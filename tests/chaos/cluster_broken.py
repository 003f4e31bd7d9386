"""Clusters that are broken on purpose, to see the checker find it: what `cluster_broker.py` does to each broker.

Each is one rule of replication left out, as somebody might leave it out. They show that a run that finds nothing means
something.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from tests.chaos.broken import lose_cache
from tests.chaos.checker import Kind
from tests.chaos.cluster_plan import ClusterFault

SLOW_TO_COPY_S: Final = 1.0


class ClusterBreakage(Enum):
    """What is done to all brokers."""

    NONE = "none"
    LOST_CACHE = "lost-cache"
    """Nothing, but a broker's page cache is lost when it is killed: a sound cluster stands that, of one and of two."""
    EARLY_ACKNOWLEDGEMENT = "acknowledged-before-replication"
    """Committed is what the leader itself has."""
    NO_EPOCH_FENCING = "no-epoch-fencing"
    """Fetches are answered whatever epochs they name, and who may have been replaced goes on leading."""
    TRUNCATE_TO_HIGH_WATERMARK = "truncate-to-high-watermark"
    """A follower of a new leader drops what it does not know to be committed, as before KIP-101. For that to show soon,
    the leader reports the divergence one answer late, and the follower waits a moment before it copies again."""
    STALE_CONTROLLER = "stale-controller"
    """A controller that has lost its session goes on, commits or not, and nobody refuses what it decides."""
    LONE_CONTROLLER = "lone-controller"
    """The leader of the metadata quorum needs no other voter: what it has itself is committed, and it never resigns."""
    UNSYNCED_METADATA = "unsynced-metadata"
    """Votes and records of the metadata log are answered before they are synced; and SIGKILL takes with it what a node
    has not synced."""


LOSE_CACHE: Final = (ClusterBreakage.LOST_CACHE, ClusterBreakage.UNSYNCED_METADATA)
"""Clusters whose page cache is lost with a process."""


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """A run in which a breakage shows."""

    seed: int
    seconds: float
    workload: str
    faults: tuple[Enum, ...]
    finds: frozenset[Kind]
    """Anomalies, of which the checker finds at least one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers, over those they always have."""
    on_zookeeper: bool = False


_GONE: Final = frozenset({Kind.LOST_WRITE, Kind.VANISHED, Kind.TORN_TRANSACTION})
_DIFFERENT: Final = frozenset({Kind.REPLICAS_DIFFER, Kind.TWO_VALUES, *_GONE})

CLUSTER_CASES: Final[Mapping[ClusterBreakage, ClusterCase]] = {
    ClusterBreakage.NONE: ClusterCase(1, 20.0, "mixed", (ClusterFault.CUT_FROM_CLUSTER,), frozenset()),
    ClusterBreakage.LOST_CACHE: ClusterCase(1, 20.0, "mixed", (ClusterFault.KILL, ClusterFault.KILL_TWO), frozenset()),
    ClusterBreakage.EARLY_ACKNOWLEDGEMENT: ClusterCase(1, 20.0, "mixed", (ClusterFault.CUT_FROM_CLUSTER,), _GONE),
    ClusterBreakage.NO_EPOCH_FENCING: ClusterCase(
        1, 20.0, "mixed", (ClusterFault.CUT_FROM_CLUSTER, ClusterFault.PAUSE), _DIFFERENT
    ),
    ClusterBreakage.TRUNCATE_TO_HIGH_WATERMARK: ClusterCase(1, 20.0, "mixed", (ClusterFault.KILL_TWO,), _DIFFERENT),
    ClusterBreakage.STALE_CONTROLLER: ClusterCase(
        1, 30.0, "mixed", (ClusterFault.CUT_FROM_CLUSTER,), _DIFFERENT, {"min.insync.replicas": "1"}, on_zookeeper=True
    ),
    ClusterBreakage.LONE_CONTROLLER: ClusterCase(
        1, 30.0, "mixed", (ClusterFault.CUT_FROM_CLUSTER,), _DIFFERENT, {"min.insync.replicas": "1"}
    ),
    ClusterBreakage.UNSYNCED_METADATA: ClusterCase(1, 20.0, "mixed", (ClusterFault.KILL_ALL,), _DIFFERENT),
}
"""For each breakage a seed that shows it, without Java workers."""


def _early_acknowledgement() -> None:
    from ottla.replication.decisions.in_sync import InSyncReplicas

    InSyncReplicas.committed = lambda self, own_end, now, alive: own_end  # type: ignore[method-assign]


def _no_epoch_fencing() -> None:
    from ottla.replication.manager import ReplicaManager
    from ottla.server import fetch_attempt

    sound = ReplicaManager.for_fetch

    def for_fetch(self: Any, topic: Any, partition: Any, epoch: Any, **more: Any) -> Any:
        return sound(self, topic, partition, -1, **more)

    changed: Any = ReplicaManager
    changed.for_fetch = for_fetch
    changed.fence = lambda self: None
    changed._check_still_leads = lambda self, partition, acks: None
    fetch_attempt.FetchAttempt._diverges = lambda self, target, partition: False  # type: ignore[method-assign]


def _truncate_to_high_watermark() -> None:
    from ottla.replication.fetchers import ReplicaFetchers
    from ottla.replication.partition import Partition

    sound_follow, sound_fetch, sound_update = Partition.follow, ReplicaFetchers.follow, Partition.update_from_leader
    said: dict[Partition, Any] = {}

    def follow(self: Partition, state: Any) -> bool:
        is_new_epoch = sound_follow(self, state)
        if is_new_epoch and self.log.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(self.log.high_watermark)
        return is_new_epoch

    def update_from_leader(self: Partition, high_watermark: Any, log_start_offset: Any) -> None:
        before, said[self] = said.get(self, self.log.high_watermark), high_watermark
        sound_update(self, min(before, high_watermark), log_start_offset)

    def copy(self: Any, partition: Partition, topic_id: Any) -> None:
        self.stop(partition)
        epoch = partition.leader_epoch

        def later() -> None:
            if not partition.leading and partition.leader_epoch == epoch:
                sound_fetch(self, partition, topic_id)

        asyncio.get_running_loop().call_later(SLOW_TO_COPY_S, later)

    Partition.update_from_leader = update_from_leader  # type: ignore[method-assign]
    Partition.follow = follow  # type: ignore[method-assign]
    ReplicaFetchers.follow = copy  # type: ignore[method-assign]


def _stale_controller() -> None:
    from ottla.cluster.commands import apply
    from ottla.metadata.cluster_controller import ClusterController
    from ottla.metadata.cluster_metadata import ClusterMetadata
    from ottla.metadata.service import MetadataService
    from ottla.metadata.store.base import SessionEvent
    from ottla.server.inter_broker import InterBrokerGate

    sound_changed, sound_commit, sound_catch_up = (
        ClusterController._session_changed,
        MetadataService._commit,
        MetadataService._catch_up,
    )

    def session_changed(self: ClusterController, event: SessionEvent) -> None:
        if event is not SessionEvent.LOST:
            sound_changed(self, event)

    async def commit(self: Any, commands: Any) -> None:
        if self._store.holds_session():
            await sound_commit(self, commands)
        else:
            self._show(apply(self._image, commands))

    async def catch_up(self: Any) -> None:
        if self._store.holds_session():
            await sound_catch_up(self)

    changed: Any = MetadataService
    changed._commit, changed._catch_up = commit, catch_up
    ClusterController._session_changed = session_changed  # type: ignore[method-assign]
    ClusterMetadata.check_controller = lambda self, controller_epoch, broker_epoch: None  # type: ignore[method-assign]
    InterBrokerGate.admits = lambda self, claim, context: True  # type: ignore[method-assign]


def _lone_controller() -> None:
    from ottla.quorum.leader_state import LeaderState

    changed: Any = LeaderState
    changed.majority_end = lambda self: self.own_end
    changed.needs_others = property(lambda self: False)


def _unsynced_metadata() -> None:
    from ottla.metadata.quorum import election_file
    from ottla.metadata.quorum.raft_node import RaftNode

    lose_cache()
    sound = RaftNode._in_thread

    async def in_thread(self: Any, work: Any, *arguments: Any) -> Any:
        if getattr(work, "__name__", "") != "sync":
            return await sound(self, work, *arguments)
        return None

    changed: Any = RaftNode
    changed._in_thread = in_thread

    election_file.write = lambda *anything, **more: None  # lost with the cache: as if it had never been written


_BREAK: Final[Mapping[ClusterBreakage, Callable[[], None]]] = {
    ClusterBreakage.NONE: lambda: None,
    ClusterBreakage.LOST_CACHE: lose_cache,
    ClusterBreakage.EARLY_ACKNOWLEDGEMENT: _early_acknowledgement,
    ClusterBreakage.NO_EPOCH_FENCING: _no_epoch_fencing,
    ClusterBreakage.TRUNCATE_TO_HIGH_WATERMARK: _truncate_to_high_watermark,
    ClusterBreakage.STALE_CONTROLLER: _stale_controller,
    ClusterBreakage.LONE_CONTROLLER: _lone_controller,
    ClusterBreakage.UNSYNCED_METADATA: _unsynced_metadata,
}


def break_it(breakage: ClusterBreakage) -> None:
    """Change this process, before it serves."""
    _BREAK[breakage]()
