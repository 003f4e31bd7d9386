"""Incremental fetch sessions (KIP-227): what a fetcher asked for last time, so that it need only say what changed.

A session is a list of partitions with their positions, kept here under a number. Epoch 0 opens one, epochs 1, 2, 3 ...
go on with it, epoch -1 closes it or never had one. Answers then hold only partitions that have something new.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.session_epochs import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH
from ottla.replication.decisions.in_sync import QuietFetches

NO_SESSION: Final = 0
TOPIC_IDS_SINCE: Final = 13
MAX_SESSION_TARGETS: Final = 50_000
MAX_TARGETS: Final = 500_000
"""Partitions in a session, and in all of them: each takes half a kilobyte, and each request may add more."""

TopicKey = str | UUID
TargetKey = tuple[TopicKey, int]


class FetchTarget:
    """One partition a fetcher reads, and the state it last received."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "last_high_watermark",
        "last_log_start_offset",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "topic",
        "turn",
    )

    def __init__(self, topic: TopicKey, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = 0
        self.partition_max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        """Leader epoch of the last record before `fetch_offset` that the fetcher has; -1 if unknown."""
        self.log_start_offset = -1
        """Where a follower's log begins."""
        self.last_high_watermark = -1
        self.last_log_start_offset = -1
        self.turn = 0
        """Greater than that of every target that got data earlier; 0 if it got none yet."""


class Settled:
    """What a fetch of a follower has seen: of all its partitions but the `unsettled` ones, it has and knows
    everything."""

    __slots__ = ("changes", "ends_at", "fetches", "replica", "replica_epoch", "unsettled")

    def __init__(
        self,
        replica: int,
        replica_epoch: int,
        changes: int,
        ends_at: float,
        fetches: QuietFetches,
        unsettled: set[TargetKey],
    ) -> None:
        self.replica = replica
        self.replica_epoch = replica_epoch
        self.changes = changes
        """`LedChanges.count` before it looked."""
        self.ends_at = ends_at
        """When all partitions are looked at again all the same."""
        self.fetches = fetches
        self.unsettled = unsettled
        """With those that the fetcher has left out since."""


class FetchSession:
    """The targets in the order they are served: a served partition goes to the end, so that none starves."""

    __slots__ = ("epoch", "last_used", "session_id", "settled", "targets", "turns", "updates", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH
        self.uses_topic_ids = uses_topic_ids
        self.targets: dict[TargetKey, FetchTarget] = {}
        self.last_used = 0.0
        self.turns = 0
        """The last `FetchTarget.turn`."""
        self.updates = 0
        """How many requests have changed the targets."""
        self.settled: Settled | None = None

    def update(self, request: FetchRequest) -> None:
        """Take over what the request adds, changes and forgets."""
        if not request.topics and not request.forgotten_topics_data:
            return
        self.updates += 1
        by_id = self.uses_topic_ids
        targets = self.targets
        named: list[TargetKey] = []
        for topic in request.topics:
            key: TopicKey = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                at = key, wanted.partition
                named.append(at)
                target = targets.get(at)
                if target is None:
                    target = targets[at] = FetchTarget(key, wanted.partition)
                target.fetch_offset = wanted.fetch_offset
                target.partition_max_bytes = wanted.partition_max_bytes
                target.current_leader_epoch = wanted.current_leader_epoch
                target.last_fetched_epoch = wanted.last_fetched_epoch
                target.log_start_offset = wanted.log_start_offset
        for forgotten in request.forgotten_topics_data:
            key = forgotten.topic_id if by_id else forgotten.topic
            named += [(key, gone) for gone in forgotten.partitions if targets.pop((key, gone), None) is not None]
        if self.settled is not None:
            self.settled.unsettled.update(named)

    def served(self, targets: Iterable[FetchTarget]) -> None:
        """These got data: they are read last next time."""
        order = self.targets
        for target in targets:
            key = (target.topic, target.partition)
            if key in order:
                order[key] = order.pop(key)
                self.turns += 1
                target.turn = self.turns


class FetchSessionCache:
    """All sessions of a broker, at most `max_sessions` with `max_targets` partitions; a full cache gives the place of
    those that lay idle. A session that has no room to grow ends: its client begins anew."""

    def __init__(
        self, max_sessions: int = 1000, min_eviction_seconds: float = 120.0, *, max_targets: int = MAX_TARGETS
    ) -> None:
        self._max_sessions = max_sessions
        self._max_targets = max_targets
        self._targets = 0
        """Number of targets in all sessions."""
        self._min_eviction_seconds = min_eviction_seconds
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, now: float) -> tuple[FetchSession, bool] | ErrorCode:
        """The session this request belongs to and whether its answer is incremental; or the error to answer with.

        A request that wants no session, or for which there is no room, gets one that is not kept (its id is 0).
        """
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self.drop(request.session_id)
            session = FetchSession(NO_SESSION, by_id)
            session.update(request)
            if request.session_epoch == INITIAL_EPOCH and self._make_room(now, len(session.targets)):
                session.session_id = self._new_id()
                session.epoch = 1
                session.last_used = now
                self._sessions[session.session_id] = session
                self._targets += len(session.targets)
            return session, False
        known = self._sessions.get(request.session_id)
        if known is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if known.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if known.uses_topic_ids != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._targets -= len(known.targets)
        known.update(request)
        self._targets += len(known.targets)
        if not known.targets:  # it has nothing to remember
            self.drop(known.session_id)
            return FetchSession(NO_SESSION, by_id), False
        if len(known.targets) > MAX_SESSION_TARGETS or self._targets > self._max_targets:
            self.drop(known.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        known.epoch = 1 if known.epoch == MAX_EPOCH else known.epoch + 1
        known.last_used = now
        self._sessions.move_to_end(known.session_id)
        return known, True

    def _make_room(self, now: float, targets: int) -> bool:
        while len(self._sessions) >= self._max_sessions or self._targets + targets > self._max_targets:
            oldest_id, oldest = next(iter(self._sessions.items()), (0, None))
            if oldest is None or now - oldest.last_used < self._min_eviction_seconds:
                return False
            self.drop(oldest_id)
        return True

    def drop(self, session_id: int) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._targets -= len(session.targets)

    def _new_id(self) -> int:
        while True:
            session_id = random.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                return session_id
