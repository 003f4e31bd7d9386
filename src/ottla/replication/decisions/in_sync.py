"""PURE. The followers of a partition that this broker leads, their progress, and the resulting high watermark.

    own log     |==================================| end
    follower 2  |============================|          in sync
    follower 3  |======================|                in sync   <- the high watermark ends here
    follower 4  |======|                                out of sync

The in-sync set changes in two steps, since only the controller may change it (KIP-497). A proposed change counts at
once where that is the careful side (a new member holds the high watermark back), and only after it is accepted where
it would be careless (a leaving member goes on holding it back).

Source: Kafka 3.9, `Partition` and `Replica`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset

UNKNOWN: Final = Offset(-1)
PAUSE_AFTER_REFUSAL_S: Final = 0.5
"""A follower that the controller will not have fetches on, and would be proposed with every fetch."""
NEVER: Final = float("-inf")
ANY_EPOCH: Final = -1

GIVEN_UP_AFTER: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)
"""The controller has decided something else, and will say so: until then the proposal stands, so that nothing is
committed by fewer than either of them asks for."""
WITHDRAWN_AFTER: Final = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
"""Nothing has changed, and the same proposal would be refused again."""


class QuietFetches:
    """Fetches of one follower, of many partitions, with which nothing changes: one time of the last for all of them.

    The caller moves `at` on, and makes sure that the followers' logs still end where the leader's do.
    """

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class Follower:
    """How far one follower has come."""

    __slots__ = (
        "_caught_up_at",
        "_last_fetch_at",
        "broker_epoch",
        "end_offset",
        "last_end_seen",
        "log_start_offset",
        "quiet",
    )

    def __init__(self) -> None:
        self.end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.broker_epoch = ANY_EPOCH
        self._caught_up_at = NEVER
        self._last_fetch_at = NEVER
        self.last_end_seen = UNKNOWN
        """Where the leader's log ended at the last fetch."""
        self.quiet: QuietFetches | None = None
        """Its fetches since it had everything, as long as nothing changes."""

    @property
    def caught_up_at(self) -> float:
        """When it last had everything there was at that time, in seconds."""
        return self._caught_up_at if self.quiet is None else self.quiet.at

    @property
    def last_fetch_at(self) -> float:
        return self._last_fetch_at if self.quiet is None else self.quiet.at

    def fetched(self, now: float, caught_up_at: float) -> None:
        """Note the time of a fetch that is not one of the quiet ones."""
        self.quiet = None
        self._last_fetch_at, self._caught_up_at = now, caught_up_at


class Proposal(NamedTuple):
    """An in-sync set for the controller to accept."""

    isr: tuple[BrokerId, ...]
    epochs: tuple[int, ...]
    """The broker epochs of `isr`; `ANY_EPOCH` where unknown."""
    leader_epoch: LeaderEpoch
    partition_epoch: int


class InSyncReplicas:
    """The replicas of a partition in one leader epoch. Times are seconds on a clock that never goes back."""

    __slots__ = (
        "_epoch_start",
        "_lag_s",
        "_no_growth_before",
        "broker_id",
        "followers",
        "is_confirmed",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "pending",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        replicas: Iterable[BrokerId],
        isr: tuple[BrokerId, ...],
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        epoch_start: Offset,
        lag_s: float,
        now: float,
        is_confirmed: bool = True,
    ) -> None:
        """`epoch_start` is the log end offset when this epoch began, `lag_s` replica.lag.time.max.ms. Without
        `is_confirmed` the controller first has to accept that this broker leads.
        """
        self.broker_id = broker_id
        self.isr = isr
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.is_confirmed = is_confirmed
        """Does the controller know that this broker leads? Until then another one may be elected that is not in sync,
        and nothing is committed, nor may the in-sync set change."""
        self.pending: Proposal | None = None
        self.followers: dict[BrokerId, Follower] = {}
        self._epoch_start = epoch_start
        self._lag_s = lag_s
        self._no_growth_before = NEVER
        for replica in replicas:
            if replica != broker_id:
                follower = self.followers[replica] = Follower()
                if replica in isr:  # it gets its time to show up
                    follower.fetched(NEVER, caught_up_at=now)

    # -- what is committed -------------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """All that may be in sync: the set of now, and the one that is proposed."""
        if self.pending is None:
            return self.isr
        return self.isr + tuple(replica for replica in self.pending.isr if replica not in self.isr)

    def committed(self, own_end: Offset, now: float, alive: Iterable[BrokerId]) -> Offset:
        """The offset below which all in-sync replicas have everything; `own_end` is this one's end offset.

        A follower that keeps up but is not in the set yet is waited for, too: it could otherwise never catch up with a
        log
        that is written to all the time. -1 until every member of the set has fetched.
        """
        committed = own_end
        maximal = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.end_offset < committed and (
                replica in maximal or (self._keeps_up(follower, own_end, now) and replica in alive)
            ):
                committed = follower.end_offset
        return committed

    def _keeps_up(self, follower: Follower, end: Offset, now: float) -> bool:
        return follower.end_offset == end or now - follower.caught_up_at <= self._lag_s

    # -- fetches -----------------------------------------------------------------------------------------------------

    def fetched(
        self,
        replica: BrokerId,
        offset: Offset,
        *,
        log_start_offset: Offset,
        end_offset: Offset,
        broker_epoch: int,
        now: float,
    ) -> bool:
        """A follower fetches from `offset`, so it has what is before; returns whether it has come further.

        `end_offset` is where the leader's log ends. A follower has caught up when it has fetched all there was at its
        fetch before this one: else one that fetches from a log that grows would never be seen to.
        """
        follower = self.followers[replica]
        caught_up_at = follower.caught_up_at
        if offset >= end_offset:
            caught_up_at = max(caught_up_at, now)
        elif offset >= follower.last_end_seen != UNKNOWN:
            caught_up_at = max(caught_up_at, follower.last_fetch_at)
        follower.fetched(now, caught_up_at)
        moved = offset != follower.end_offset
        follower.end_offset = offset
        follower.log_start_offset = max(log_start_offset, follower.log_start_offset)
        follower.last_end_seen = end_offset
        follower.broker_epoch = broker_epoch
        return moved

    def is_still_there(
        self,
        replica: BrokerId,
        offset: Offset,
        *,
        log_start_offset: Offset,
        end_offset: Offset,
        broker_epoch: int,
        quiet: QuietFetches,
    ) -> bool:
        """A fast path of `fetched` for an in-sync follower that had everything at its last fetch and still has: most of
        them. It counts as following with each of the `quiet` fetches.

        False, without a change, in every other case.
        """
        follower = self.followers.get(replica)
        if (
            follower is None
            or not offset == end_offset == follower.end_offset == follower.last_end_seen
            or log_start_offset != follower.log_start_offset
            or broker_epoch != follower.broker_epoch
            or replica not in self.isr
        ):
            return False
        follower.quiet = quiet
        return True

    def leave_quiet_fetches(self, replica: BrokerId) -> None:
        """From now on, the follower keeps the time of the last of its quiet fetches."""
        follower = self.followers.get(replica)
        if follower is not None and follower.quiet is not None:
            follower.fetched(follower.quiet.at, follower.quiet.at)

    def followed_since(self, then: float) -> bool:
        """Whether every follower that is in sync has fetched in this leader epoch since; False if there is none."""
        following = [replica for replica in self.maximal_isr if replica in self.followers]
        return bool(following) and all(self.followers[replica].last_fetch_at >= then for replica in following)

    def least_log_start(self, own: Offset) -> Offset:
        """The lowest log start among the replicas that are in sync, `own` being this one's: no replica has records
        below that any more. -1 while a member of the set has not fetched."""
        maximal = self.maximal_isr
        starts = [follower.log_start_offset for replica, follower in self.followers.items() if replica in maximal]
        return min([own, *starts])

    # -- the in-sync set ---------------------------------------------------------------------------------------------

    def propose_growth(
        self, replica: BrokerId, high_watermark: Offset, alive: Iterable[BrokerId], now: float
    ) -> Proposal | None:
        """Propose to take in a follower that fetches, and has all that is committed, and all of the epochs before this
        one."""
        follower = self.followers[replica]
        if (
            self.pending is not None
            or not self.is_confirmed
            or now < self._no_growth_before
            or replica in self.isr
            or now - follower.last_fetch_at > self._lag_s
            or follower.end_offset < high_watermark
            or follower.end_offset < self._epoch_start
            or replica not in alive
        ):
            return None
        return self._propose((*self.isr, replica))

    def propose_shrink(self, end_offset: Offset, now: float) -> Proposal | None:
        """Propose to drop the followers that have lagged for too long."""
        if self.pending is not None or not self.is_confirmed:
            return None
        lagging = [
            replica
            for replica in self.isr
            if replica != self.broker_id
            and not (replica in self.followers and self._keeps_up(self.followers[replica], end_offset, now))
        ]
        if not lagging:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in lagging))

    def propose_confirmation(self) -> Proposal | None:
        """Confirm that this broker leads, by proposing the in-sync set as it is; None if that is done, or under way."""
        return None if self.is_confirmed or self.pending is not None else self._propose(self.isr)

    def _propose(self, isr: tuple[BrokerId, ...]) -> Proposal:
        epochs = tuple(
            self.followers[replica].broker_epoch if replica in self.followers else ANY_EPOCH for replica in isr
        )
        self.pending = Proposal(isr, epochs, self.leader_epoch, self.partition_epoch)
        return self.pending

    def accepted(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> bool:
        """Apply the set that the controller accepted; False if it is older than the known one."""
        if partition_epoch < self.partition_epoch:
            return False
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.pending = None
        self.is_confirmed = True
        return True

    def refused(self, code: ErrorCode, now: float) -> Proposal | None:
        """The controller refuses the proposal, or could not be asked; returns what is to be sent again, if anything."""
        if code in WITHDRAWN_AFTER:
            self.pending = None
            self._no_growth_before = now + PAUSE_AFTER_REFUSAL_S
            return None
        return None if code in GIVEN_UP_AFTER else self.pending
