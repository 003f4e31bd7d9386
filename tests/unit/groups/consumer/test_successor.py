"""Consumer groups read from a log, and the interval between their assignments (KIP-1263)."""

from tests.support.consumer_members import Consumer, G, World, commit, settle, topic_id

from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import Append, CancelTimer, Reply, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.consumer.events import ConsumerHeartbeat
from ottla.groups.consumer.records import (
    ConsumerGroupEpoch,
    CurrentAssignment,
    MemberState,
    SubscriptionMetadata,
    SubscriptionMetadataDeleted,
    TargetAssignmentEpoch,
)
from ottla.groups.events import FetchOffsets
from ottla.ids import TopicName

SESSION_MS = 45_000


# --- what lasts ----------------------------------------------------------------------------------------------------


def test_a_successor_carries_on_where_the_last_one_was(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    b.join()
    a.beat()
    before = world.describe()
    world.restart()
    assert world.describe() == before
    settle(a, b)
    assert (a.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])
    assert world.records(ConsumerGroupEpoch)[-1].epoch == 3, "nothing has changed but the coordinator"


def test_a_successor_times_out_who_does_not_come(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    b.join()
    a.beat()
    world.restart()
    b.beat()
    world.driver.pass_time(SESSION_MS - 1)
    b.beat()
    world.driver.pass_time(1)
    settle(b)
    assert b.partitions == ["t-0", "t-1", "t-2", "t-3"]


def test_topics_that_changed_while_nobody_looked_are_noticed(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat()
    world.set_topics({"t": 6})
    world.restart()
    assert a.beat().assignment == {topic_id("t"): {0, 1, 2, 3, 4, 5}}


def test_a_member_in_a_state_of_a_later_version_begins_with_nothing(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat()
    world.driver.log.append(CurrentAssignment(G, a.member_id, 2, 0, MemberState.UNKNOWN, a.has, {}))
    world.change_topics({"t": 5}, "t")
    world.restart()
    assert a.beat().error is ErrorCode.FENCED_MEMBER_EPOCH
    a.has = {}
    beat = a.send(owned={})
    assert (beat.error, beat.member_epoch) == (ErrorCode.NONE, 3)
    assert beat.assignment == {topic_id("t"): {0, 1, 2, 3, 4}}


def test_a_record_about_topics_from_before_4_1_is_deleted(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    world.driver.log.append(SubscriptionMetadata(G))
    world.restart()
    a.beat()
    assert world.records(SubscriptionMetadataDeleted) == [SubscriptionMetadataDeleted(G)]
    a.beat()
    assert len(world.records(SubscriptionMetadataDeleted)) == 1


def test_offsets_in_the_log_before_the_group_do_not_make_it_another(world: World) -> None:
    world.ask(commit("", -1))
    a = Consumer(world, "a")
    a.join()
    world.restart()
    assert world.describe().state == "Stable"
    assert world.ask(FetchOffsets(G, None)).topics[0].offsets[0].offset == 7


def test_one_heartbeat_is_one_write(world: World) -> None:
    a = Consumer(world, "a")
    event = ConsumerHeartbeat(G, a.member_id, 0, None, None, "c", "/h", 60_000, a.topics, None, None, {})
    effects = world.driver.send(event)
    assert [type(effect) for effect in effects] == [Append, CancelTimer, SetTimer, Reply]
    assert isinstance(effects[0], Append)
    assert isinstance(effects[0].records[-1], CurrentAssignment)


# --- how often assignments are computed (KIP-1263) ------------------------------------------------------------------


def test_members_that_come_within_the_interval_are_assigned_together(world: World) -> None:
    world.settings = GroupSettings(consumer_assignment_interval_ms=1_000)
    a, b, c = (Consumer(world, name) for name in "abc")
    assert a.join().assignment == {topic_id("t"): {0, 1, 2, 3}}
    for member in (b, c):
        beat = member.join()
        assert (beat.member_epoch, beat.assignment, beat.heartbeat_interval_ms) == (2, {}, 1_000)
    assert a.beat().member_epoch == 2
    assert world.describe().state == "Assigning"
    world.driver.pass_time(1_000)
    settle(a, b, c)
    assert sorted(a.partitions + b.partitions + c.partitions) == ["t-0", "t-1", "t-2", "t-3"]
    assert [record.epoch for record in world.records(TargetAssignmentEpoch)] == [2, 4]


def test_topics_that_are_no_longer_read_go_before_the_next_assignment(world: World) -> None:
    world.settings = GroupSettings(consumer_assignment_interval_ms=1_000)
    a = Consumer(world, "a", ("t", "u"))
    a.join()
    a.beat()
    assert a.beat(topic_names=frozenset({TopicName("u")})).assignment == {topic_id("u"): {0, 1}}
    assert a.epoch == 2


def test_a_successor_knows_when_the_assignment_was_computed(world: World) -> None:
    world.settings = GroupSettings(consumer_assignment_interval_ms=1_000)
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    world.restart()
    assert b.join().assignment == {}
    assert b.beat().member_epoch == 2


def test_an_assignment_of_nothing_holds_up_nobody(world: World) -> None:
    world.settings = GroupSettings(consumer_assignment_interval_ms=1_000)
    a = Consumer(world, "a", [], regex="t.*")
    assert a.join().assignment == {}
    world.resolve(**{"t.*": ["t"]})
    assert a.beat().assignment == {topic_id("t"): {0, 1, 2, 3}}


def test_a_clock_that_was_set_back_holds_up_nobody(world: World) -> None:
    world.settings = GroupSettings(consumer_assignment_interval_ms=1_000)
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    world.driver.now_ms -= 60_000
    b.join()
    settle(a, b)
    assert (a.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])
