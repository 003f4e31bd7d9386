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
    d.send(static("join-i", "i"))
    d.send(static("join-j", "j"))
    d.pass_time(2 * DELAY_MS)
    one, two = d.reply("join-i").member_id, d.reply("join-j").member_id
    d.send(sync("sync-j", two, 1, instance=InstanceId("j")))
    d.send(sync("sync-i", one, 1, {one: b"i", two: b"j"}, instance=InstanceId("i")))
    assert state(d) is GroupState.STABLE
    return one, two


def test_a_static_member_needs_no_second_join() -> None:
    d = driver()
    d.send(static("a", "i"))
    assert d.waits("a")
    d.pass_time(DELAY_MS)
    assert d.reply("a").member_id == "i-1"


def test_a_restarted_static_follower_takes_over_without_a_rebalance() -> None:
    d = driver()
    one, two = static_group(d)
    effects = d.send(static("back", "j"))
    back = d.reply("back")
    assert (back.error, back.generation, back.leader, back.members) == (ErrorCode.NONE, 1, one, ())
    assert state(d) is GroupState.STABLE
    assert [type(effect) for effect in effects] == [CancelTimer, SetTimer, Append, Reply]
    d.send(sync("share", back.member_id, 1, instance=InstanceId("j")))
    assert d.reply("share").assignment == b"j"
    d.send(heartbeat("old", two, 1, InstanceId("j")))
    assert d.reply("old") is ErrorCode.FENCED_INSTANCE_ID


def test_a_restarted_static_leader_is_told_not_to_assign() -> None:
    d = driver()
    static_group(d)
    d.send(static("back", "i"))
    back = d.reply("back")
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)


def test_an_older_static_leader_is_told_that_its_former_self_leads() -> None:
    d = driver()
    one, _ = static_group(d)
    d.send(static("back", "i", may_skip_assignment=False))
    back = d.reply("back")
    assert (back.leader, back.skip_assignment, back.members) == (one, False, ())
    d.send(sync("share", back.member_id, 1, instance=InstanceId("i")))
    assert d.reply("share").assignment == b"i"


def test_waiting_for_static_members_without_patience_keeps_nobody_busy() -> None:
    d = driver()
    d.send(static("a", "i", rebalance_timeout_ms=1))
    d.pass_time(DELAY_MS)
    d.send(sync("s", d.reply("a").member_id, 1, {}))
    other = enter(d, "b", rebalance_timeout_ms=1)
    d.send(Leave("leave", G, (LeavingMember(MemberId(other)),)))
    fired = []
    d.pass_time(5_000, until=lambda: fired.append(d.now_ms) is None and len(fired) > 20)
    assert len(fired) < 10


def test_a_static_member_back_with_another_protocol_rebalances() -> None:
    d = driver()
    d.send(static("a", "i", protocols=(RANGE, STICKY)))
    d.pass_time(DELAY_MS)
    one = d.reply("a").member_id
    d.send(sync("s", one, 1, {one: b"x"}, instance=InstanceId("i")))
    d.send(static("back", "i", protocols=(STICKY, RANGE)))
    assert d.reply("back").generation == 2
    assert d.reply("back").protocol_name == "cooperative-sticky"


def test_a_static_member_back_during_the_sync_phase_starts_it_over() -> None:
    d = driver()
    d.send(static("a", "i"))
    d.send(static("b", "j"))
    d.pass_time(2 * DELAY_MS)
    d.send(sync("sync-j", d.reply("b").member_id, 1, instance=InstanceId("j")))
    d.send(static("back", "j"))
    assert d.reply("sync-j").error is ErrorCode.FENCED_INSTANCE_ID
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_a_second_process_fences_the_parked_join_of_the_first() -> None:
    d = driver()
    d.send(static("a", "i"))
    d.send(static("b", "i"))
    assert d.reply("a") == Joined(ErrorCode.FENCED_INSTANCE_ID, MemberId("i-1"))
    d.pass_time(DELAY_MS)
    assert d.reply("b").member_id == "i-2"


def test_an_instance_under_a_wrong_id_is_fenced_everywhere() -> None:
    d = driver()
    static_group(d)
    wrong = InstanceId("i")
    d.send(static("join", "i", "i-0"))
    d.send(sync("sync", "i-0", 1, instance=wrong))
    d.send(heartbeat("beat", "i-0", 1, wrong))
    d.send(Leave("leave", G, (LeavingMember(MemberId("i-0"), wrong),)))
    d.send(static("nobody", "k", "k-0"))
    fenced = (d.reply("join").error, d.reply("sync").error, d.reply("beat"), d.reply("leave").errors[0])
    assert fenced == (ErrorCode.FENCED_INSTANCE_ID,) * 4
    assert d.reply("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    d = driver()
    static_group(d)
    d.send(
        Leave(
            "bye",
            G,
            (LeavingMember(MemberId(""), InstanceId("j"), "gone"), LeavingMember(MemberId(""), InstanceId("k"))),
        )
    )
    assert d.reply("bye") == Left((ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID))
    assert state(d) is GroupState.PREPARING_REBALANCE


def test_static_members_that_do_not_rejoin_stay_until_their_session_ends() -> None:
    d = driver()
    d.send(static("a", "i", session_timeout_ms=600_000))
    d.send(static("b", "j", session_timeout_ms=600_000))
    d.pass_time(2 * DELAY_MS)
    one, two = d.reply("a").member_id, d.reply("b").member_id
    d.send(sync("sync-j", two, 1, instance=InstanceId("j")))
    d.send(sync("sync-i", one, 1, {one: b"i"}, instance=InstanceId("i")))
    d.send(static("a2", "i", one))
    d.pass_time(REBALANCE_MS)
    assert [member.member_id for member in d.reply("a2").members] == [one, two]


def test_a_rebalance_that_no_static_member_rejoins_waits_on() -> None:
    d = driver()
    d.send(static("a", "i", session_timeout_ms=600_000))
    newcomer = enter(d, "b")
    d.pass_time(2 * DELAY_MS)
    one = d.reply("a").member_id
    d.send(sync("s", one, 1, {one: b"i"}, instance=InstanceId("i")))
    d.send(sync("t", newcomer, 1))
    d.send(leave("bye", newcomer))
    d.pass_time(REBALANCE_MS)
    assert state(d) is GroupState.PREPARING_REBALANCE
    d.send(static("back", "i"))
    assert d.reply("back").generation == 2
