"""The followers of a partition, and what is committed by them."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset
from ottla.replication.decisions.in_sync import InSyncReplicas, Proposal, QuietFetches

ALIVE = (BrokerId(1), BrokerId(2), BrokerId(3))
LAG_S = 10.0


def led(*isr: int, epoch_start: int = 0, now: float = 0.0) -> InSyncReplicas:
    """Broker 1 leads replicas 1, 2 and 3."""
    return InSyncReplicas(
        BrokerId(1),
        ALIVE,
        tuple(BrokerId(replica) for replica in isr),
        leader_epoch=LeaderEpoch(4),
        partition_epoch=7,
        epoch_start=Offset(epoch_start),
        lag_s=LAG_S,
        now=now,
    )


def fetch(state: InSyncReplicas, replica: int, offset: int, end: int, now: float = 0.0, epoch: int = 100) -> bool:
    return state.fetched(
        BrokerId(replica),
        Offset(offset),
        log_start_offset=Offset(0),
        end_offset=Offset(end),
        broker_epoch=epoch + replica,
        now=now,
    )


def test_nothing_is_committed_before_all_that_are_in_sync_have_been_heard_of() -> None:
    state = led(1, 2)
    assert state.committed(Offset(5), 0.0, ALIVE) == -1
    fetch(state, 2, 3, 5)
    assert state.committed(Offset(5), 0.0, ALIVE) == 3


@pytest.mark.parametrize(
    ("replica", "offset", "start", "end", "epoch"),
    [(2, 4, 0, 5, 102), (2, 5, 1, 5, 102), (2, 5, 0, 6, 102), (2, 5, 0, 5, 103), (3, 5, 0, 5, 103), (9, 5, 0, 5, 109)],
    ids=["behind", "another start", "the log has grown", "started anew", "out of sync", "no replica"],
)
def test_the_fast_path_is_for_followers_that_still_have_everything(
    replica: int, offset: int, start: int, end: int, epoch: int
) -> None:
    state = led(1, 2)
    for follower in (2, 3):
        fetch(state, follower, 5, 5, now=1.0)

    def fast(replica: int, offset: int, start: int, end: int, epoch: int) -> bool:
        return state.is_still_there(
            BrokerId(replica),
            Offset(offset),
            log_start_offset=Offset(start),
            end_offset=Offset(end),
            broker_epoch=epoch,
            quiet=QuietFetches(2.0),
        )

    assert not fast(replica, offset, start, end, epoch)
    assert [state.followers[BrokerId(number)].last_fetch_at for number in (2, 3)] == [1.0, 1.0]
    assert fast(2, 5, 0, 5, 102)
    slow = led(1, 2)
    for now in (1.0, 2.0):
        fetch(slow, 2, 5, 5, now=now)
    assert vars_of(state.followers[BrokerId(2)]) == vars_of(slow.followers[BrokerId(2)])


def vars_of(follower: Any) -> dict[str, Any]:
    names = ("broker_epoch", "caught_up_at", "end_offset", "last_end_seen", "last_fetch_at", "log_start_offset")
    return {name: getattr(follower, name) for name in names}


def test_who_is_out_of_sync_holds_nothing_back() -> None:
    state = led(1, 2)
    fetch(state, 2, 5, 5)
    fetch(state, 3, 1, 5)
    assert state.committed(Offset(5), 0.0, ALIVE) == 5


def test_who_keeps_up_is_waited_for_though_not_in_sync_yet_unless_it_is_gone() -> None:
    state = led(1)
    fetch(state, 3, 5, 5)
    assert state.committed(Offset(8), 1.0, ALIVE) == 5
    assert state.committed(Offset(8), 1.0, ALIVE[:2]) == 8
    assert state.committed(Offset(8), LAG_S + 1, ALIVE) == 8


def test_a_leader_that_is_alone_in_sync_is_followed_by_nobody() -> None:
    state = led(1, 2)
    assert not state.followed_since(1.0)
    fetch(state, 2, 5, 5, now=2.0)
    assert state.followed_since(1.0)
    assert not led(1).followed_since(1.0)


def test_a_follower_that_has_everything_is_taken_in_with_the_epoch_it_fetches_in() -> None:
    state = led(1, 2, epoch_start=4)
    fetch(state, 2, 6, 6)
    fetch(state, 3, 3, 6)
    assert state.propose_growth(BrokerId(3), Offset(2), ALIVE, 0.0) is None  # it may lack records of earlier epochs
    fetch(state, 3, 5, 6)
    assert state.propose_growth(BrokerId(3), Offset(6), ALIVE, 0.0) is None  # and here of committed ones
    assert state.propose_growth(BrokerId(3), Offset(5), ALIVE[:2], 0.0) is None
    proposal = state.propose_growth(BrokerId(3), Offset(5), ALIVE, 0.0)
    assert proposal == Proposal((BrokerId(1), BrokerId(2), BrokerId(3)), (-1, 102, 103), LeaderEpoch(4), 7)
    assert state.propose_growth(BrokerId(3), Offset(5), ALIVE, 0.0) is None  # one at a time


def test_a_proposed_member_counts_at_once_and_one_to_leave_until_it_has_left() -> None:
    growing = led(1)
    fetch(growing, 3, 5, 5)
    growing.propose_growth(BrokerId(3), Offset(5), ALIVE, 0.0)
    assert growing.committed(Offset(9), LAG_S * 9, ALIVE) == 5
    shrinking = led(1, 2)
    fetch(shrinking, 2, 5, 9)
    assert shrinking.propose_shrink(Offset(9), LAG_S * 2) is not None
    assert shrinking.committed(Offset(9), LAG_S * 9, ALIVE) == 5
    assert shrinking.accepted((BrokerId(1),), 8)
    assert shrinking.committed(Offset(9), LAG_S * 9, ALIVE) == 9


def test_only_who_lags_for_too_long_is_dropped() -> None:
    state = led(1, 2, 3, now=100.0)
    assert state.propose_shrink(Offset(5), 100.0 + LAG_S) is None
    fetch(state, 2, 5, 5, now=105.0)
    proposal = state.propose_shrink(Offset(6), 101.0 + LAG_S)
    assert proposal is not None
    assert proposal.isr == (1, 2)


def test_the_quiet_fetches_of_a_follower_count_until_it_is_looked_at_again() -> None:
    state, quiet = led(1, 2), QuietFetches(1.0)
    follower = state.followers[BrokerId(2)]
    fetch(state, 2, 5, 5, now=0.0)
    ends = {"log_start_offset": Offset(0), "end_offset": Offset(5), "broker_epoch": 102}
    assert state.is_still_there(BrokerId(2), Offset(5), **ends, quiet=quiet)  # type: ignore[arg-type]
    quiet.at = 4.0
    assert (follower.last_fetch_at, follower.caught_up_at) == (4.0, 4.0)
    assert state.followed_since(4.0)
    fetch(state, 2, 5, 9, now=6.0)  # the log has grown meanwhile: it had everything at the last quiet fetch
    quiet.at = 8.0
    assert (follower.last_fetch_at, follower.caught_up_at) == (6.0, 4.0)


def test_a_follower_at_the_end_is_in_sync_however_long_ago_it_fetched() -> None:
    state = led(1, 2)
    fetch(state, 2, 5, 5)
    assert state.propose_shrink(Offset(5), 1e6) is None


def test_a_follower_of_a_growing_log_keeps_up_by_what_there_was_when_it_last_asked() -> None:
    state = led(1, 2)
    fetch(state, 2, 0, 10, now=1.0)
    fetch(state, 2, 10, 20, now=2.0)
    assert state.followers[BrokerId(2)].caught_up_at == 1.0
    fetch(state, 2, 19, 30, now=3.0)
    assert state.followers[BrokerId(2)].caught_up_at == 1.0
    fetch(state, 2, 30, 40, now=4.0)
    assert state.followers[BrokerId(2)].caught_up_at == 3.0


def test_an_older_answer_of_the_controller_changes_nothing() -> None:
    state = led(1, 2)
    assert not state.accepted((BrokerId(1),), 6)
    assert state.isr == (1, 2)


@pytest.mark.parametrize(
    ("code", "again", "stands"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False, True),
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.REQUEST_TIMED_OUT, True, True),
    ],
)
def test_what_becomes_of_a_refused_proposal(code: ErrorCode, again: bool, stands: bool) -> None:
    state = led(1)
    fetch(state, 3, 5, 5)
    proposal = state.propose_growth(BrokerId(3), Offset(5), ALIVE, 0.0)
    assert state.refused(code, 0.0) == (proposal if again else None)
    assert (state.pending is not None) is stands


def test_a_follower_that_was_dropped_is_taken_in_only_if_it_fetches() -> None:
    """Where fewer than min.insync.replicas remain, nothing is committed without it, so that it always has enough."""
    state = led(1, 2)
    fetch(state, 2, 5, 5, now=1.0)
    proposal = state.propose_shrink(Offset(6), 2.0 + LAG_S)
    assert proposal is not None
    assert state.accepted(proposal.isr, 8)
    assert state.propose_growth(BrokerId(2), Offset(5), ALIVE, 2.0 + LAG_S) is None
    fetch(state, 2, 5, 6, now=3.0 + LAG_S)
    assert state.propose_growth(BrokerId(2), Offset(5), ALIVE, 4.0 + LAG_S)


def test_a_follower_that_is_refused_is_not_proposed_again_at_once() -> None:
    state = led(1)
    fetch(state, 3, 5, 5, now=10.0)
    assert state.propose_growth(BrokerId(3), Offset(5), ALIVE, 10.0)
    state.refused(ErrorCode.INELIGIBLE_REPLICA, 10.0)
    assert state.propose_growth(BrokerId(3), Offset(5), ALIVE, 10.1) is None
    assert state.propose_growth(BrokerId(3), Offset(5), ALIVE, 11.0)


def test_records_may_go_that_no_follower_in_sync_has_kept() -> None:
    state = led(1, 2)
    assert state.least_log_start(Offset(5)) == -1
    for replica, start in ((2, 4), (3, 1)):
        state.fetched(
            BrokerId(replica), Offset(9), log_start_offset=Offset(start), end_offset=Offset(9), broker_epoch=1, now=0
        )
    assert state.least_log_start(Offset(5)) == 4, "3 is not in sync"
    assert state.least_log_start(Offset(3)) == 3


class ALeader(RuleBasedStateMachine):
    """Followers that come and go, and a controller that accepts late, refuses, or has other ideas.

    The truth is what each follower has. What is committed has to be on all that the controller could elect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.end = 0
        self.state = led(1, 2, 3)
        self.has = {BrokerId(2): 0, BrokerId(3): 0}
        self.isr: tuple[BrokerId, ...] = self.state.isr
        """As the controller has it."""
        self.partition_epoch = 7
        self.high_watermark = 0
        self.sent: list[Proposal] = []
        self.answers: list[tuple[tuple[BrokerId, ...], int]] = []

    def _advance(self) -> None:
        committed = self.state.committed(Offset(self.end), self.now, ALIVE)
        self.high_watermark = max(self.high_watermark, committed)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count
        self._advance()

    @rule(replica=st.sampled_from([2, 3]), copied=st.integers(0, 6))
    def follower_fetches(self, replica: int, copied: int) -> None:
        follower = BrokerId(replica)
        fetch(self.state, replica, self.has[follower], self.end, self.now)
        proposal = self.state.propose_growth(follower, Offset(self.high_watermark), ALIVE, self.now)
        if proposal is not None:
            self.sent.append(proposal)
        self._advance()
        self.has[follower] = min(self.end, self.has[follower] + copied)

    @rule(seconds=st.floats(0, 30))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        proposal = self.state.propose_shrink(Offset(self.end), self.now)
        if proposal is not None:
            self.sent.append(proposal)

    @rule()
    def controller_accepts(self) -> None:
        """Maybe one that it has been sent twice; the answer is on its way."""
        if self.sent and self.sent[0].partition_epoch == self.partition_epoch:
            self.isr = self.sent[0].isr
            self.partition_epoch += 1
            self.answers.append((self.isr, self.partition_epoch))
        if self.sent:
            self.sent.pop(0)

    @rule(code=st.sampled_from([ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER]))
    def controller_refuses(self, code: ErrorCode) -> None:
        if self.sent:
            self.sent.pop(0)
            again = self.state.refused(code, self.now)
            if again is not None:
                self.sent.append(again)

    @rule()
    def answer_arrives(self) -> None:
        if self.answers:
            isr, epoch = self.answers.pop(0)
            self.state.accepted(isr, epoch)
            self._advance()

    @rule(data=st.data())
    def answer_is_lost(self, data: Any) -> None:
        if self.answers:
            isr, epoch = self.answers.pop(0)
            again = self.state.refused(ErrorCode.REQUEST_TIMED_OUT, self.now)
            assert again is not None  # sent again, the controller says that it is so already
            self.answers.insert(0, (isr, epoch))

    @invariant()
    def whoever_may_lead_has_what_is_committed(self) -> None:
        for replica in self.isr:
            assert replica == 1 or self.has[replica] >= self.high_watermark


ALeader.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeader = ALeader.TestCase
