"""Static members of classic groups (KIP-345)."""

from tests.support.state_machines import Driver
from tests.unit.groups.classic.requests import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    STICKY,
    G,
    driver,
    enter,
    heartbeat,
    leave,
    state,
    static,
    sync,
)

from ottla.coordination.state_machine import Append, CancelTimer, Reply, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.classic.states import GroupState
from ottla.groups.events import (
    Joined,
    Leave,
    LeavingMember,
    Left,
)
from ottla.ids import InstanceId, MemberId

# --- static members (KIP-345) ----------------------------------------------------------------------------------


def static_group(d: Driver) -> tuple[str, str]:
    """Instances "i" (the leader) and "j", stable at generation 1, with shares b"i" and b"j"."""
    d.send(static("i"), "join-i")
    d.send(static("j"), "join-j")
    d.pass_time(2 * DELAY_MS)
    one, two = d.reply("join-i").member_id, d.reply("join-j").member_id
    d.send(sync(two, 1, instance=InstanceId("j")), "sync-j")
    d.send(sync(one, 1, {one: b"i", two: b"j"}, instance=InstanceId("i")), "sync-i")
    assert state(d) is GroupState.STABLE
    return one, two


def test_a_static_member_needs_no_second_join() -> None:
    d = driver()
    d.send(static("i"), "a")
    assert d.waits("a")
    d.pass_time(DELAY_MS)
    assert d.reply("a").member_id == "i-1"


def test_a_restarted_static_follower_takes_over_without_a_rebalance() -> None:
    d = driver()
    one, two = static_group(d)
    effects = d.send(static("j"), "back")
    back = d.reply("back")
    assert (back.error, back.generation, back.leader, back.members) == (ErrorCode.NONE, 1, one, ())
    assert state(d) is GroupState.STABLE
    assert [type(effect) for effect in effects] == [CancelTimer, SetTimer, Append, Reply]
    d.send(sync(back.member_id, 1, instance=InstanceId("j")), "share")
    assert d.reply("share").assignment == b"j"
    d.send(heartbeat(two, 1, InstanceId("j")), "old")
    assert d.reply("old") is ErrorCode.FENCED_INSTANCE_ID


def test_a_restarted_static_leader_is_told_not_to_assign() -> None:
    d = driver()
    static_group(d)
    d.send(static("i"), "back")
    back = d.reply("back")
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_an_older_static_leader_is_told_that_its_former_self_leads() -> None:
    d = driver()
    one, _ = static_group(d)
    d.send(static("i", may_skip_assignment=False), "back")
    back = d.reply("back")
    assert (back.leader, back.skip_assignment, back.members) == (one, False, ())
    d.send(sync(back.member_id, 1, instance=InstanceId("i")), "share")
    assert d.reply("share").assignment == b"i"


def test_waiting_for_static_members_without_patience_keeps_nobody_busy() -> None:
    d = driver()
    d.send(static("i", rebalance_timeout_ms=1), "a")
    d.pass_time(DELAY_MS)
    d.send(sync(d.reply("a").member_id, 1, {}), "s")
    other = enter(d, "b", rebalance_timeout_ms=1)
    d.send(Leave(G, (LeavingMember(MemberId(other)),)), "leave")
    fired = []
    d.pass_time(5_000, until=lambda: fired.append(d.now_ms) is None and len(fired) > 20)
    assert len(fired) < 10


def test_a_static_member_back_with_another_protocol_rebalances() -> None:
    d = driver()
    d.send(static("i", protocols=(RANGE, STICKY)), "a")
    d.pass_time(DELAY_MS)
    one = d.reply("a").member_id
    d.send(sync(one, 1, {one: b"x"}, instance=InstanceId("i")), "s")
    d.send(static("i", protocols=(STICKY, RANGE)), "back")
    assert d.reply("back").generation == 2
    assert d.reply("back").protocol_name == "cooperative-sticky"


def test_a_static_member_back_during_the_sync_phase_starts_it_over() -> None:
    d = driver()
    d.send(static("i"), "a")
    d.send(static("j"), "b")
    d.pass_time(2 * DELAY_MS)
    d.send(sync(d.reply("b").member_id, 1, instance=InstanceId("j")), "sync-j")
    d.send(static("j"), "back")
    assert d.reply("sync-j").error is ErrorCode.FENCED_INSTANCE_ID
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_a_second_process_fences_the_parked_join_of_the_first() -> None:
    d = driver()
    d.send(static("i"), "a")
    d.send(static("i"), "b")
    assert d.reply("a") == Joined(ErrorCode.FENCED_INSTANCE_ID, MemberId("i-1"))
    d.pass_time(DELAY_MS)
    assert d.reply("b").member_id == "i-2"


def test_an_instance_under_a_wrong_id_is_fenced_everywhere() -> None:
    d = driver()
    static_group(d)
    wrong = InstanceId("i")
    d.send(static("i", "i-0"), "join")
    d.send(sync("i-0", 1, instance=wrong), "sync")
    d.send(heartbeat("i-0", 1, wrong), "beat")
    d.send(Leave(G, (LeavingMember(MemberId("i-0"), wrong),)), "leave")
    d.send(static("k", "k-0"), "nobody")
    fenced = (d.reply("join").error, d.reply("sync").error, d.reply("beat"), d.reply("leave").errors[0])
    assert fenced == (ErrorCode.FENCED_INSTANCE_ID,) * 4
    assert d.reply("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    d = driver()
    static_group(d)
    d.send(
        Leave(
            G,
            (LeavingMember(MemberId(""), InstanceId("j"), "gone"), LeavingMember(MemberId(""), InstanceId("k"))),
        ),
        "bye",
    )
    assert d.reply("bye") == Left((ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID))
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_static_members_that_do_not_rejoin_stay_until_their_session_ends() -> None:
    d = driver()
    d.send(static("i", session_timeout_ms=600_000), "a")
    d.send(static("j", session_timeout_ms=600_000), "b")
    d.pass_time(2 * DELAY_MS)
    one, two = d.reply("a").member_id, d.reply("b").member_id
    d.send(sync(two, 1, instance=InstanceId("j")), "sync-j")
    d.send(sync(one, 1, {one: b"i"}, instance=InstanceId("i")), "sync-i")
    d.send(static("i", one), "a2")
    d.pass_time(REBALANCE_MS)
    assert [member.member_id for member in d.reply("a2").members] == [one, two]


def test_a_rebalance_that_no_static_member_rejoins_waits_on() -> None:
    d = driver()
    d.send(static("i", session_timeout_ms=600_000), "a")
    newcomer = enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    one = d.reply("a").member_id
    d.send(sync(one, 1, {one: b"i"}, instance=InstanceId("i")), "s")
    d.send(sync(newcomer, 1), "t")
    d.send(leave(newcomer), "bye")
    d.pass_time(REBALANCE_MS)
    assert state(d) is GroupState.PREPARING_REBALANCE
    d.send(static("i"), "back")
    assert d.reply("back").generation == 2
