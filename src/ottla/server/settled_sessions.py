"""Which partitions of a follower's session have to be looked at: those to which something has happened since its last
fetch, instead of thousands to which nothing has (ADR 61).
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ottla.ids import BrokerId
from ottla.protocol.messages.fetch import FetchRequest
from ottla.replication.decisions.in_sync import QuietFetches
from ottla.security.authorization import Operation
from ottla.server.fetch_sessions import FetchSession, FetchTarget, Settled

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager
    from ottla.server.context import RequestContext

NO_EPOCH: Final = -1
LOOK_AT_ALL_S: Final = 10.0
"""Interval at which a follower's fetch looks at all partitions, whatever has changed."""


def replica_of(request: FetchRequest) -> int:
    """The broker that follows; -1 for a consumer."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def epoch_of(request: FetchRequest) -> int:
    """The epoch of the broker that follows; -1 if it names none."""
    return NO_EPOCH if request.replica_state is None else request.replica_state.replica_epoch


def unsettled_targets(
    replicas: "ReplicaManager", session: FetchSession, request: FetchRequest, context: "RequestContext", now: float
) -> list[FetchTarget] | None:
    """The partitions that may not be as they were when the session's fetches looked last, in the order in which they
    are served; None for all."""
    settled = session.settled
    if (
        settled is None
        or request.min_bytes > 1
        or settled.ends_at <= now
        or (settled.replica, settled.replica_epoch) != (replica_of(request), epoch_of(request))
        or (context.access is not None and not context.access.may_cluster(Operation.CLUSTER_ACTION))
    ):
        return None
    changed = replicas.led_changes.since(settled.changes)
    targets = session.targets
    if changed is None or len(changed) + len(settled.unsettled) > len(targets):
        return None
    keys = settled.unsettled.union(
        (each.log.topic_id, each.topic_partition.partition) for each in changed if each.log.topic_id is not None
    )
    return sorted((target for key in keys if (target := targets.get(key)) is not None), key=attrgetter("turn"))


class Look:
    """One look of a fetch at partitions of a session, and what it leaves for the next fetch."""

    __slots__ = ("_is_first", "_now", "_replica", "_replicas", "_session", "_settled", "_updates", "changes")

    def __init__(
        self, replicas: "ReplicaManager", session: FetchSession, request: FetchRequest, now: float, *, is_first: bool
    ) -> None:
        """Only the first look of a fetch notes the progress of its follower."""
        self._replicas = replicas
        self._session = session
        self._replica = replica_of(request)
        self._is_first = is_first and self._replica >= 0
        self._now = now
        self._updates = session.updates
        self._settled = Settled(
            self._replica, epoch_of(request), replicas.led_changes.count, now + LOOK_AT_ALL_S, QuietFetches(now), set()
        )
        self.changes = self._settled.changes
        """`LedChanges.count` when it began."""

    @property
    def fetches(self) -> QuietFetches:
        """This fetch, and those after it with which nothing changes."""
        return self._settled.fetches

    @property
    def is_quiet(self) -> bool:
        """Whether the follower has and knows everything that was looked at."""
        return not self._settled.unsettled

    def begin_with(self, some: list[FetchTarget]) -> None:
        """Look at some partitions only. The other ones of the session count as followed from now on."""
        if self._is_first and self._session.settled is not None:
            known, changes = self._session.settled, self.changes
            known.unsettled.update((target.topic, target.partition) for target in some)
            for key in known.unsettled:
                partition = self._replicas.find(*key)
                if partition is not None:
                    partition.leave_quiet_fetches(BrokerId(self._replica))
            targets = self._session.targets  # without those that the follower has left out by now
            known.unsettled = {key for key in known.unsettled if key in targets}
            known.fetches.at = max(self._now, known.fetches.at)
            known.changes = changes
            self._settled = known

    def found(self, target: FetchTarget, *, is_settled: bool) -> None:
        """Whether the follower has and knows everything of a partition."""
        key = target.topic, target.partition
        if is_settled:
            self._settled.unsettled.discard(key)
        else:
            self._settled.unsettled.add(key)

    def end_with_all(self) -> None:
        """All partitions have been looked at."""
        session, settled = self._session, self._settled
        if not self._is_first:
            return
        is_usable = session.updates == self._updates and 2 * len(settled.unsettled) <= len(session.targets)
        session.settled = settled if is_usable and session.uses_topic_ids else None
