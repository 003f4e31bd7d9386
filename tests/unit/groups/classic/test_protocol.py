"""The classic protocol, step by step, as lists of effects."""

from typing import Any

import pytest
from tests.support.state_machines import Driver
from tests.unit.groups.classic.requests import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY,
    G,
    driver,
    enter,
    heartbeat,
    join,
    leave,
    stable_group,
    state,
    sync,
)

from ottla.coordination.state_machine import Append, CancelTimer, Reply, SetTimer, TimerFired
from ottla.errors import ErrorCode
from ottla.groups.classic.records import GroupMetadata, StoredMember
from ottla.groups.classic.states import GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import DescribeHistory
from ottla.groups.events import (
    Assignor,
    Heartbeat,
    Joined,
    JoinedMember,
    Left,
    Synced,
)
from ottla.groups.state_machine import GroupMachine
from ottla.ids import GroupId, MemberId

# --- a first rebalance -----------------------------------------------------------------------------------------


def test_a_new_member_is_sent_back_with_an_id_and_then_parked() -> None:
    d = driver()
    assert d.send(join(), "a") == [
        SetTimer(("session", "g", "c-1"), SESSION_MS),
        Reply(d.requests["a"], Joined(ErrorCode.MEMBER_ID_REQUIRED, MemberId("c-1"))),
    ]
    assert d.send(join("c-1"), "b") == [
        SetTimer(("session", "g", "c-1"), 300_000),
        SetTimer(("rebalance", "g"), DELAY_MS),
    ]
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_an_old_client_is_parked_at_once() -> None:
    d = driver()
    d.send(join(requires_member_id=False), "a")
    assert d.waits("a")
    d.pass_time(DELAY_MS)
    assert d.reply("a").member_id == "c-1"


def test_after_the_initial_delay_the_leader_learns_of_everybody() -> None:
    d = driver()
    one = enter(d, "a")
    d.pass_time(DELAY_MS - 1_000)
    two = enter(d, "b")
    d.pass_time(DELAY_MS - 1)
    assert d.waits("a")
    d.pass_time(1)
    everybody = (JoinedMember(MemberId(one), None, b"r"), JoinedMember(MemberId(two), None, b"r"))
    assert d.reply("a") == Joined(ErrorCode.NONE, MemberId(one), 1, "consumer", "range", MemberId(one), everybody)
    assert d.reply("b") == Joined(ErrorCode.NONE, MemberId(two), 1, "consumer", "range", MemberId(one), ())
    assert d.log == []


def test_the_initial_delay_is_counted_from_the_last_who_came() -> None:
    d = driver()
    start_ms = d.now_ms
    for number in range(5):
        enter(d, number)
        d.pass_time(100)
    enter(d, 5)
    d.pass_time(REBALANCE_MS, until=lambda: not d.waits(0))
    assert d.now_ms - start_ms == 500 + DELAY_MS
    assert len(d.reply(0).members) == 6


def test_the_initial_delay_grows_while_members_come_but_not_past_the_rebalance_timeout() -> None:
    d = driver()
    start_ms = d.now_ms
    enter(d, 0, rebalance_timeout_ms=10_000)
    for i in range(1, 8):
        d.pass_time(2_000)
        if d.waits(0):
            enter(d, i, rebalance_timeout_ms=10_000)
    assert not d.waits(0)
    assert d.now_ms - start_ms == 14_000
    assert len(d.reply(0).members) == 5  # those of 0, 2, 4, 6 and 8 s: at 10 s it was time


def test_a_clock_that_is_set_back_keeps_nobody_waiting() -> None:
    d = driver()
    enter(d, "a")
    d.now_ms -= 3_600_000
    d.send(TimerFired(("rebalance", G)))
    assert d.reply("a").generation == 1


def test_without_an_initial_delay_the_first_one_starts_alone() -> None:
    d = driver(group_initial_rebalance_delay_ms=0)
    enter(d, "a")
    d.pass_time(0)
    assert d.reply("a").generation == 1


def test_without_an_initial_delay_members_that_start_together_get_one_rebalance() -> None:
    d = driver(group_initial_rebalance_delay_ms=0)
    for token in ("id-1", "id-2"):
        d.send(join(), token)
    first, second = (d.reply(token).member_id for token in ("id-1", "id-2"))
    d.send(join(first), "a")
    d.pass_time(100)
    assert d.waits("a"), "the second member has its id and is about to come"
    d.send(join(second), "b")
    d.pass_time(30)
    third = enter(d, "c")
    d.pass_time(40)
    assert d.waits("a"), "members follow each other closely"
    d.pass_time(20)
    assert {member.member_id for member in d.reply("a").members} == {first, second, third}
    assert d.reply("c").generation == 1


def test_without_an_initial_delay_a_crowd_without_end_is_not_waited_for() -> None:
    d = driver(group_initial_rebalance_delay_ms=0)
    enter(d, "first")
    for number in range(30):
        d.send(join(), f"id-{number}")
        enter(d, number)
        d.pass_time(20)
        if not d.waits("first"):
            break
    assert d.reply("first").generation == 1
    assert 20 <= number <= 26, "half a second"


def test_the_leaders_assignment_is_written_and_handed_out_after_it() -> None:
    d = driver()
    one, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    assert d.send(sync(two, 1), "sync-b") == []
    effects = d.send(sync(one, 1, {one: b"p0", two: b"p1"}), "sync-a")
    stored = GroupMetadata(
        G,
        "consumer",
        1,
        "range",
        MemberId(one),
        d.now_ms,
        (
            StoredMember(MemberId(one), None, "c", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"r", b"p0"),
            StoredMember(MemberId(two), None, "c", "/127.0.0.1", REBALANCE_MS, SESSION_MS, b"r", b"p1"),
        ),
    )
    assert effects == [
        CancelTimer(("sync", "g")),
        Append((stored,)),
        Reply(d.requests["sync-a"], Synced(ErrorCode.NONE, "consumer", "range", b"p0")),
        SetTimer(("session", "g", one), SESSION_MS),
        Reply(d.requests["sync-b"], Synced(ErrorCode.NONE, "consumer", "range", b"p1")),
        SetTimer(("session", "g", two), SESSION_MS),
    ]
    assert state(d) is GroupState.STABLE


def test_a_follower_that_syncs_late_gets_its_share_from_the_stable_group() -> None:
    d = driver()
    one, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(one, 1, {one: b"p0", two: b"p1"}), "sync-a")
    assert d.send(sync(two, 1), "sync-b")[-1] == Reply(
        d.requests["sync-b"], Synced(ErrorCode.NONE, "consumer", "range", b"p1")
    )
    assert ("sync", "g") not in d.timers


def test_a_member_the_leader_forgot_gets_nothing() -> None:
    d = driver()
    one, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(one, 1, {one: b"all"}), "sync-a")
    d.send(sync(two, 1), "sync-b")
    assert d.reply("sync-b") == Synced(ErrorCode.NONE, "consumer", "range", b"")


def test_assignments_too_large_to_be_written_are_refused() -> None:
    d = driver(max_record_bytes=2_000)
    one, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(two, 1), "sync-b")
    d.send(sync(one, 1, {one: b"x" * 2_000}), "sync-a")
    assert d.reply("sync-a").error is d.reply("sync-b").error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert state(d) is GroupState.PREPARING_REBALANCE
    assert d.log == []


def test_whoever_does_not_sync_in_time_is_dropped() -> None:
    d = driver()
    one, two = enter(d, "a"), enter(d, "b", session_timeout_ms=1_000_000)
    d.pass_time(2 * DELAY_MS)
    d.send(sync(one, 1, {one: b"x", two: b"y"}), "sync-a")
    for _ in range(12):
        d.pass_time(5_000)
        d.send(heartbeat(one, 1), ("alive", d.now_ms))
    assert state(d) is GroupState.PREPARING_REBALANCE
    d.send(heartbeat(two, 1), "h")
    assert d.reply("h") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("leaving", "told"), [([1], "{1} left"), ([1, 2], "{1} and 1 more left")])
def test_the_history_names_whoever_left(leaving: list[int], told: str) -> None:
    d = driver()
    members = stable_group(d, 3)
    d.send(leave(*(members[i] for i in leaving)), "leave")
    for i in sorted({0, 1, 2} - set(leaving)):
        d.send(join(members[i]), ("again", i))
    d.send(sync(members[0], 2, {members[0]: b"x"}), "sync")
    d.send(DescribeHistory(G), "history")
    assert d.reply("history").rebalances[-1].reasons[0] == told.format(*members)


def test_the_history_names_whoever_did_not_join_in_time() -> None:
    d = driver()
    one, two = stable_group(d)
    d.send(join(one, protocols=(STICKY, RANGE)), "again")
    for _ in range(12):  # the other is alive, and does not come
        d.pass_time(REBALANCE_MS // 12)
        d.send(heartbeat(two, 1), ("alive", d.now_ms))
    assert d.reply("again").generation == 2
    d.send(sync(one, 2, {one: b"x"}), "sync")
    d.send(DescribeHistory(G), "history")
    assert f"{two} has not joined in time" in d.reply("history").rebalances[-1].reasons


# --- choosing a protocol ---------------------------------------------------------------------------------------


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    d = driver()
    enter(d, "a", protocols=(RANGE, STICKY))
    enter(d, "b", protocols=(STICKY, RANGE))
    enter(d, "c", protocols=(STICKY, Assignor("roundrobin", b""), RANGE))
    d.pass_time(3 * DELAY_MS)
    assert d.reply("a").protocol_name == "cooperative-sticky"
    assert [member.metadata for member in d.reply("a").members] == [b"s", b"s", b"s"]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (Assignor("roundrobin", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_who_has_no_protocol_in_common_with_the_group_is_refused(changes: dict[str, Any]) -> None:
    d = driver()
    enter(d, "a")
    d.send(join(**changes), "b")
    assert d.reply("b") == Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, MemberId(""))


def test_an_empty_group_may_change_its_protocol_type() -> None:
    d = driver()
    (one,) = stable_group(d, 1)
    d.send(leave(one), "bye")
    enter(d, "b", protocol_type="connect", protocols=(Assignor("sessioned", b""),))
    d.pass_time(DELAY_MS)
    assert (d.reply("b").protocol_type, d.reply("b").generation) == ("connect", 3)


def test_sync_must_name_the_groups_protocol() -> None:
    d = driver()
    one = enter(d, "a")
    d.pass_time(DELAY_MS)
    d.send(sync(one, 1, protocol_type="connect"), "x")
    d.send(sync(one, 1, protocol_name="roundrobin"), "y")
    assert d.reply("x").error is d.reply("y").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    d.send(sync(one, 1, protocol_type="consumer", protocol_name="range"), "z")
    assert d.reply("z").error is ErrorCode.NONE


# --- later rebalances ------------------------------------------------------------------------------------------


def test_a_newcomer_makes_everybody_join_again() -> None:
    d = driver()
    one, two = stable_group(d)
    three = enter(d, "c")
    d.send(heartbeat(one, 1), "h")
    assert d.reply("h") is ErrorCode.REBALANCE_IN_PROGRESS
    d.send(join(one), "a2")
    assert d.waits("a2")
    d.send(join(two), "b2")
    assert d.reply("a2").generation == 2
    assert [member.member_id for member in d.reply("a2").members] == [one, two, three]


def test_the_group_does_not_wait_for_a_follower_that_asks_again_unchanged() -> None:
    d = driver()
    _, two = stable_group(d)
    d.send(join(two), "again")
    assert d.reply("again").generation == 1
    assert state(d) is GroupState.STABLE


def test_the_leader_may_ask_for_a_rebalance() -> None:
    d = driver()
    one, _ = stable_group(d)
    d.send(join(one), "again")
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_a_changed_subscription_rebalances() -> None:
    d = driver()
    _, two = stable_group(d)
    d.send(join(two, protocols=(Assignor("range", b"other topics"),)), "again")
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_who_does_not_rejoin_within_the_rebalance_timeout_is_dropped_and_another_leads() -> None:
    d = driver()
    one, two = stable_group(d)
    d.send(leave(), "bye")
    d.send(join(two, protocols=(Assignor("range", b"new"),)), "b2")
    for _ in range(13):
        d.send(heartbeat(one, 1), ("alive", d.now_ms))
        d.pass_time(5_000)
    reply = d.reply("b2")
    assert (reply.generation, reply.leader, len(reply.members)) == (2, two, 1)
    assert d.reply(("alive", d.now_ms - 5_000)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_leaves_an_empty_group_behind() -> None:
    d = driver()
    (one,) = stable_group(d, 1)
    assert d.send(leave(one), "bye")[-2:] == [
        Append((GroupMetadata(G, "consumer", 2, None, None, d.now_ms, ()),)),
        Reply(d.requests["bye"], Left((ErrorCode.NONE,))),
    ]
    assert state(d) is GroupState.EMPTY


def test_a_rebalance_interrupts_those_who_wait_for_the_leader() -> None:
    d = driver()
    _, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(two, 1), "sync-b")
    enter(d, "c")
    assert d.reply("sync-b") == Synced(ErrorCode.REBALANCE_IN_PROGRESS)


def test_a_repeated_join_takes_the_place_of_the_first() -> None:
    d = driver()
    one = enter(d, "first")
    d.send(join(one), "second")
    assert d.reply("first").error is ErrorCode.REBALANCE_IN_PROGRESS
    d.pass_time(DELAY_MS)
    assert d.reply("second").error is ErrorCode.NONE


def test_a_repeated_sync_takes_the_place_of_the_first() -> None:
    d = driver()
    _, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(two, 1), "first")
    d.send(sync(two, 1), "second")
    assert d.reply("first").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert d.waits("second")


# --- sessions --------------------------------------------------------------------------------------------------


def test_a_silent_member_is_dropped_and_the_others_rebalance() -> None:
    d = driver()
    one, two = stable_group(d)
    d.pass_time(6_000)
    assert d.send(heartbeat(one, 1), "h") == [
        SetTimer(("session", "g", one), SESSION_MS),
        Reply(d.requests["h"], ErrorCode.NONE),
    ]
    d.pass_time(6_000)
    d.send(heartbeat(one, 1), "h2")
    d.send(heartbeat(two, 1), "h3")
    assert (d.reply("h2"), d.reply("h3")) == (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_parked_member_needs_no_heartbeats() -> None:
    d = driver()
    one, _ = stable_group(d)
    d.send(join(one), "a2")
    assert d.send(TimerFired(("session", "g", one))) == []


def test_a_new_member_is_not_parked_for_ever() -> None:
    d = driver()
    one = enter(d, "a")
    d.send(TimerFired(("session", "g", one)))
    assert d.reply("a") == Joined(ErrorCode.UNKNOWN_MEMBER_ID, MemberId(""))


def test_an_id_that_nobody_comes_back_for_is_taken_back_and_the_group_forgotten() -> None:
    d = driver()
    d.send(join(), "a")
    d.pass_time(SESSION_MS)
    assert state(d) is GroupState.DEAD
    d.send(join("c-1"), "b")
    assert d.reply("b") == Joined(ErrorCode.UNKNOWN_MEMBER_ID, MemberId("c-1"))


def test_a_rebalance_waits_for_those_who_were_sent_back_for_their_id() -> None:
    d = driver()
    (one,) = stable_group(d, 1)
    d.send(join(), "id")
    d.send(join(one), "a2")
    assert d.waits("a2")
    d.pass_time(SESSION_MS)
    assert d.reply("a2").generation == 2


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeouts_have_limits(timeout_ms: int) -> None:
    d = driver()
    d.send(join(session_timeout_ms=timeout_ms), "a")
    assert d.reply("a").error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_what_a_member_must_get_right() -> None:
    d = driver()
    one, _ = stable_group(d)
    d.send(heartbeat(one, 0), "old")
    d.send(heartbeat("x", 1), "stranger")
    d.send(sync(one, 0), "sync-old")
    d.send(sync("x", 1), "sync-stranger")
    d.send(Heartbeat(GroupId("nowhere"), MemberId(one), None, 1), "elsewhere")
    assert d.reply("old") is d.reply("sync-old").error is ErrorCode.ILLEGAL_GENERATION
    unknown = (d.reply("stranger"), d.reply("sync-stranger").error, d.reply("elsewhere"))
    assert unknown == (ErrorCode.UNKNOWN_MEMBER_ID,) * 3


# --- leaving ---------------------------------------------------------------------------------------------------


def test_several_leave_at_once_each_with_its_own_answer() -> None:
    d = driver()
    one, _, three = stable_group(d, 3)
    d.send(leave(one, "stranger", three), "bye")
    assert d.reply("bye") == Left((ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE))
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_one_that_leaves_while_parked_is_answered() -> None:
    d = driver()
    one, two = enter(d, "a"), enter(d, "b")
    d.send(leave(two), "bye")
    assert d.reply("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    d.pass_time(2 * DELAY_MS)
    assert [member.member_id for member in d.reply("a").members] == [one]
    d.send(sync(one, 1), "sync")


def test_one_that_leaves_while_it_waits_for_its_share_is_answered() -> None:
    d = driver()
    _, two = enter(d, "a"), enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(two, 1), "sync-b")
    d.send(leave(two), "bye")
    assert d.reply("sync-b").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_can_leave() -> None:
    d = driver()
    d.send(join(), "a")
    assert d.send(leave("c-1"), "bye")[-1] == Reply(d.requests["bye"], Left((ErrorCode.NONE,)))
    assert d.timers == {}


def test_nobody_can_leave_a_group_that_is_not_there() -> None:
    d = driver()
    d.send(leave("a", "b"), "bye")
    assert d.reply("bye") == Left((ErrorCode.UNKNOWN_MEMBER_ID,) * 2)


# --- size ------------------------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_else() -> None:
    d = driver(group_max_size=2)
    stable_group(d)
    d.send(join(requires_member_id=False), "c")
    assert d.reply("c") == Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, MemberId(""))
    assert state(d) is GroupState.STABLE


def test_a_group_that_became_too_large_sheds_the_last_to_rejoin() -> None:
    d = driver()
    members = stable_group(d, 3)
    small = Driver(GroupMachine(GroupConfig(group_max_size=2), lambda: "x"), now_ms=d.now_ms)
    for position, record in enumerate(d.log):
        small.machine.replay(record, position, -1)
    small.carry_out(small.machine.loaded(small.now_ms))
    assert state(small) is GroupState.PREPARING_REBALANCE
    for i, member in enumerate(members):
        small.send(join(member), i)
    assert small.reply(2).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (small.reply(0).generation, len(small.reply(0).members)) == (2, 2)
