"""Regular expressions that members of consumer groups subscribe to."""

import pytest
from tests.support.consumer_members import Consumer, G, World, settle, topic_id

from ottla.errors import ErrorCode
from ottla.groups import state_machine
from ottla.groups.consumer.events import ConsumerHeartbeat, TopicsChanged
from ottla.groups.consumer.records import (
    ResolvedRegex,
    ResolvedRegexDeleted,
)
from ottla.groups.events import ListGroups
from ottla.ids import GroupId, MemberId, TopicName

# --- regular expressions -------------------------------------------------------------------------------------------


def test_an_expression_is_resolved_and_then_assigned(world: World) -> None:
    a = Consumer(world, "a", [], regex="t|u")
    beat = a.join()
    assert (beat.assignment, beat.resolve) == ({}, ("t|u",))
    assert a.beat().resolve == (), "it has been asked for"
    world.resolve(**{"t|u": ["t", "u"]})
    beat = a.beat()
    assert (beat.member_epoch, beat.resolve) == (2, ())
    assert beat.assignment == {topic_id("t"): {0, 1, 2, 3}, topic_id("u"): {0, 1}}


def test_an_expression_that_others_use_is_known(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    b = Consumer(world, "b", [], regex="t.*")
    assert b.join().resolve == ()
    settle(a, b)
    assert sorted(a.partitions + b.partitions) == ["t-0", "t-1", "t-2", "t-3"]
    assert len(a.partitions) == 2


def test_a_bad_expression_is_refused(world: World) -> None:
    beat = Consumer(world, "a", [], regex="(").join()
    assert beat.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert beat.message == "SubscribedTopicRegex `(` is not a valid regular expression: unclosed."
    assert world.ask(ListGroups()) == ()


def test_new_topics_are_looked_for_once_a_second_at_most(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    world.change_topics({"t": 4, "t2": 1}, "t2")
    assert a.beat().resolve == (), "resolved a moment ago"
    world.driver.pass_time(1_001)
    assert a.beat().resolve == ("t.*",)
    assert a.beat().resolve == ()
    world.resolve(**{"t.*": ["t", "t2"]})
    settle(a)
    assert a.partitions == ["t-0", "t-1", "t-2", "t-3", "t2-0"]


def test_an_expression_that_comes_later_is_looked_up_at_once(world: World) -> None:
    Consumer(world, "a", [], regex="t.*").join()
    world.resolve(**{"t.*": ["t"]})
    assert Consumer(world, "b", [], regex="u.*").join().resolve == ("t.*", "u.*")


def test_an_answer_that_never_comes_is_asked_for_again(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    assert a.join().resolve == ("t.*",)
    world.driver.pass_time(10_000)
    assert a.beat().resolve == ("t.*",)


def test_members_of_a_settled_group_with_expressions_come_back_as_usual(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    settle(a)
    assert a.beat().heartbeat_interval_ms == 100
    world.driver.pass_time(10_000)
    assert a.beat().heartbeat_interval_ms == 5_000
    world.driver.now_ms -= 3_600_000
    a.beat()
    world.resolve(**{"t.*": ["t"]})
    assert a.beat().heartbeat_interval_ms == 5_000, "a clock that is set back hurries nobody"


def test_a_clock_that_is_set_back_keeps_no_topics_from_expressions(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.driver.now_ms -= 3_600_000
    beat = a.beat()
    assert beat.resolve == ("t.*",), "a request from before the clock was set may never be answered"
    world.resolve(**{"t.*": ["t"]})
    a.beat()
    world.driver.now_ms -= 3_600_000
    assert a.beat().resolve == ("t.*",)


def test_the_first_member_with_an_expression_comes_back_soon_for_its_topics(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    assert a.join().heartbeat_interval_ms == 100, "not after a whole interval of five seconds"
    world.resolve(**{"t.*": ["t"]})
    assert a.beat().assignment == {topic_id("t"): {0, 1, 2, 3}}


def test_changed_topics_reach_all_groups_in_several_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine, "GROUPS_IN_A_TURN", 2)
    machine, topics = world.driver.machine, frozenset({TopicName("t")})
    for number in range(5):
        group_id = GroupId(f"g{number}")
        world.ask(ConsumerHeartbeat(group_id, MemberId("a"), 0, None, None, "c", "/h", 60_000, topics))
        machine.groups[group_id].needs_refresh = False
    left, turns = None, 0
    while left is None or left:
        left, turns = world.ask(TopicsChanged(topics, left)), turns + 1
    assert turns == 3
    assert all(group.needs_refresh for group in machine.groups.values())


def test_expressions_are_resolved_again_after_the_refresh_interval() -> None:
    world = World({"t": 1}, group_consumer_regex_refresh_interval_ms=30_000)
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    world.driver.pass_time(29_000)
    assert a.beat().resolve == ()
    world.driver.pass_time(1_001)
    assert a.beat().resolve == ("t.*",)


def test_an_expression_that_nobody_uses_is_forgotten(world: World) -> None:
    a, b = Consumer(world, "a", [], regex="t.*"), Consumer(world, "b", [], regex="u")
    a.join()
    b.join()
    world.resolve(**{"t.*": ["t"], "u": ["u"], "other": ["t"]})
    assert {record.regex for record in world.records(ResolvedRegex)} == {"t.*", "u"}
    a.beat(topic_regex="u")
    b.leave()
    assert world.records(ResolvedRegexDeleted) == [ResolvedRegexDeleted(G, "t.*")]
    a.leave()
    assert world.records(ResolvedRegexDeleted)[1:] == [ResolvedRegexDeleted(G, "u")]


def test_who_drops_its_expression_gives_up_its_topics(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    settle(a)
    assert a.beat(topic_regex="").assignment == {}
    assert world.history()[-1].reasons == ("a subscribes to no expression any more",)


def test_an_answer_that_changes_nothing_does_not_rebalance(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    settle(a)
    world.resolve(**{"t.*": ["t"]})
    assert a.beat().member_epoch == 2
