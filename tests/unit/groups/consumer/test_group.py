"""Consumer groups of KIP-848: what heartbeats lead to, one member and one step at a time."""

from dataclasses import replace

import pytest
from tests.support.consumer_members import Consumer, G, World, commit, settle, topic_id

from ottla.coordination.state_machine import Reply, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.consumer.events import ConsumerHeartbeat
from ottla.groups.events import CommitOffsets, DeleteGroups, FetchOffsets, ListGroups, TopicPartitions
from ottla.groups.records import GroupRecordFormat
from ottla.ids import GroupId, MemberId, PartitionId, TopicName

SESSION_MS = 45_000


# --- joining, reconciling ------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    a = Consumer(world, "a")
    beat = a.join()
    assert (beat.error, beat.member_id, beat.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert beat.assignment == {topic_id("t"): {0, 1, 2, 3}}
    assert world.describe().state == "Stable"


def test_a_client_without_an_id_is_given_one(world: World) -> None:
    beat = Consumer(world, "").join()
    assert beat.member_id is not None
    assert beat.member_id.startswith("id-")


def test_the_second_member_waits_for_what_the_first_gives_up_and_nobody_for_anything_else(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    assert b.join().assignment == {}
    assert world.describe().state == "Reconciling"
    assert a.beat().assignment == {topic_id("t"): {0, 1}}, "a has to revoke two, and keeps two"
    assert b.beat().assignment is None, "a still has them"
    assert a.epoch == 2
    a.beat()
    assert a.epoch == 3
    assert b.beat().assignment == {topic_id("t"): {2, 3}}
    b.beat()
    assert (a.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])
    assert world.describe().state == "Stable"


def test_a_member_that_does_not_say_what_it_has_still_has_it(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    b.join()
    a.send()
    a.send()
    assert a.epoch == 2
    assert b.beat().assignment is None


def test_a_group_whose_assignor_is_not_here_is_assigned_by_the_default_one(world: World) -> None:
    """Another broker may have had it, and left it in the log; the edge refuses it."""
    a, b = Consumer(world, "a", assignor="own.Assignor"), Consumer(world, "b")
    assert a.join().error is ErrorCode.NONE
    assert b.join().error is ErrorCode.NONE
    settle(a, b)
    assert (a.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])


def test_what_the_last_answer_said_is_repeated_to_whom_says_everything(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    assert a.beat().assignment is None
    again = a.beat(rebalance_timeout_ms=60_000, topic_names=a.topics)
    assert again.assignment == {topic_id("t"): {0, 1, 2, 3}}


def test_a_heartbeat_that_changes_nothing_writes_nothing(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat()
    world.driver.pass_time(20_000)
    effects = world.driver.send(ConsumerHeartbeat(G, a.member_id, a.epoch, None, None, "c", "/h"), "x")
    assert [type(effect) for effect in effects] == [SetTimer, Reply]
    assert world.driver.reply("x").heartbeat_interval_ms == 5_000


def test_members_are_to_come_back_sooner_while_partitions_move(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    assert a.join().heartbeat_interval_ms == 100
    assert b.join().heartbeat_interval_ms == 100
    settle(a, b)
    assert a.beat().heartbeat_interval_ms == 100
    world.driver.pass_time(10_000)
    assert a.beat().heartbeat_interval_ms == 5_000


def test_a_member_with_another_subscription_moves_the_epoch(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    beat = a.beat(topic_names=frozenset({TopicName("t"), TopicName("u")}))
    assert beat.member_epoch == 3
    assert beat.assignment == {topic_id("t"): {0, 1, 2, 3}, topic_id("u"): {0, 1}}


def test_a_client_that_only_names_itself_otherwise_does_not(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    assert a.beat(client_id="other").member_epoch == 2
    assert world.describe().members[0].client_id == "other"


def test_the_assignor_that_most_ask_for_is_used(world: World) -> None:
    world = World({"t": 3, "u": 3})
    both = ("t", "u")
    a, b = Consumer(world, "a", both, assignor="range"), Consumer(world, "b", both, assignor="range")
    c = Consumer(world, "c", both, assignor="uniform")
    for consumer in (a, b, c):
        consumer.join()
    settle(a, b, c)
    assert world.describe().assignor == "range"
    assert [a.partitions, b.partitions, c.partitions] == [[f"t-{n}", f"u-{n}"] for n in range(3)]


def test_the_first_assignor_of_the_settings_serves_who_asks_for_none() -> None:
    world = World({"t": 1}, group_consumer_assignors=("range", "uniform"))
    Consumer(world, "a").join()
    assert world.describe().assignor == "range"


def test_a_group_is_full() -> None:
    world = World({"t": 1}, group_consumer_max_size=1)
    a = Consumer(world, "a")
    a.join()
    beat = Consumer(world, "b").join()
    assert beat.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat.message == "The consumer group has reached its maximum capacity of 1 members."
    assert a.beat().error is ErrorCode.NONE


# --- fencing -------------------------------------------------------------------------------------------------------


def test_a_greater_epoch_and_an_old_one_are_fenced(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    for epoch in (3, 7):
        beat = a.send(member_epoch=epoch)
        assert beat.error is ErrorCode.FENCED_MEMBER_EPOCH
        assert beat.message is not None
        assert "greater member epoch" in beat.message
    a.beat(topic_names=frozenset({TopicName("u")}))
    a.beat(topic_names=frozenset({TopicName("t")}))
    a.beat()
    assert a.send(member_epoch=1, owned=a.has).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_accepted_when_the_answer_may_have_been_lost(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat(topic_names=frozenset({TopicName("t"), TopicName("u")}))
    assert a.send(member_epoch=2).error is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it has"
    a.epoch = 2
    beat = a.send(owned={topic_id("t"): frozenset({0})})
    assert (beat.error, beat.member_epoch) == (ErrorCode.NONE, 3)


def test_unknown_groups_and_members(world: World) -> None:
    stranger = Consumer(world, "x")
    stranger.epoch = 3
    assert stranger.beat().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave().error is ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(world, "a").join()
    assert stranger.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_is_removed(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    for _ in range(5):
        world.driver.pass_time(SESSION_MS // 4)
        a.beat()
    settle(a)
    assert a.partitions == ["t-0", "t-1", "t-2", "t-3"]
    assert b.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    b.join()
    for _ in range(7):
        a.send(owned=a.has)
        b.beat()
        world.driver.pass_time(10_000)
    assert a.send().error is ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert b.partitions == ["t-0", "t-1", "t-2", "t-3"]


def test_a_member_that_gives_them_up_late_but_in_time_stays(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    a.beat()
    b.join()
    a.send(owned=a.has)
    world.driver.pass_time(SESSION_MS - 1)
    settle(a, b)
    for _ in range(3):
        world.driver.pass_time(30_000)
        settle(a, b, rounds=1)
    assert (a.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])


def test_who_leaves_leaves_its_partitions_at_once(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    left = b.leave()
    assert (left.error, left.member_id, left.member_epoch) == (ErrorCode.NONE, "b", -1)
    assert a.beat().assignment == {topic_id("t"): {0, 1, 2, 3}}


def test_the_last_one_leaves_an_empty_group(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.leave()
    assert world.describe().state == "Empty"
    (listing,) = world.ask(ListGroups())
    assert (listing.group_id, listing.state, listing.group_type, listing.protocol_type) == (
        G,
        "Empty",
        "consumer",
        "consumer",
    )


# --- static members (KIP-345) --------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(world: World) -> None:
    a, b = Consumer(world, "a1", instance="a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    had = a.partitions
    epoch = world.describe().group_epoch
    away = a.leave(-2)
    assert (away.error, away.member_epoch) == (ErrorCode.NONE, -2)
    back = Consumer(world, "a2", instance="a")
    back.join()
    back.beat()
    assert back.partitions == had
    assert (back.epoch, world.describe().group_epoch) == (epoch, epoch), "no rebalance"
    assert {member.member_id for member in world.describe().members} == {"a2", "b"}
    a.instance = None
    assert a.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_is_in_use_is_not_given_up(world: World) -> None:
    Consumer(world, "a1", instance="a").join()
    beat = Consumer(world, "a2", instance="a").join()
    assert beat.error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_who_lost_its_instance_id_is_fenced(world: World) -> None:
    a = Consumer(world, "a1", instance="a")
    a.join()
    a.leave(-2)
    Consumer(world, "a2", instance="a").join()
    assert a.beat().error is ErrorCode.FENCED_INSTANCE_ID
    assert a.leave().error is ErrorCode.FENCED_INSTANCE_ID
    stranger = Consumer(world, "x", instance="x")
    stranger.epoch = 1
    assert stranger.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_loses_its_place(world: World) -> None:
    a, b = Consumer(world, "a1", instance="a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    a.leave(-2)
    for _ in range(4):
        world.driver.pass_time(SESSION_MS // 3)
        b.beat()
    settle(b)
    assert b.partitions == ["t-0", "t-1", "t-2", "t-3"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_static_member_that_is_away_need_not_give_anything_up_in_time(world: World, restarted: bool) -> None:
    a, b = Consumer(world, "a1", instance="a"), Consumer(world, "b")
    a.join()
    a.beat(rebalance_timeout_ms=10_000)
    b.join()
    a.send(owned=a.has)  # and has to revoke two
    a.leave(-2)
    if restarted:
        world.restart()
    world.driver.pass_time(20_000)
    assert {member.member_id for member in world.describe().members} == {"a1", "b"}
    back = Consumer(world, "a2", instance="a")
    back.join()
    settle(back, b)
    assert (back.partitions, b.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])


def test_a_static_member_that_leaves_for_good_is_gone(world: World) -> None:
    a = Consumer(world, "a1", instance="a")
    a.join()
    a.leave()
    assert Consumer(world, "a2", instance="a").join().error is ErrorCode.NONE


# --- topics --------------------------------------------------------------------------------------------------------


def test_a_topic_that_grows_is_assigned_anew(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat()
    world.change_topics({"t": 5, "u": 2}, "t")
    beat = a.beat()
    assert (beat.member_epoch, beat.assignment) == (3, {topic_id("t"): {0, 1, 2, 3, 4}})
    assert world.history()[-1].reasons == ("its topics have changed",)


def test_a_change_of_another_topic_changes_nothing(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.beat()
    world.change_topics({"t": 4, "u": 3}, "u")
    assert a.beat().member_epoch == 2


def test_a_topic_that_comes_later_and_one_that_goes(world: World) -> None:
    a = Consumer(world, "a", ["t", "new"])
    a.join()
    a.beat()
    world.change_topics({"t": 4, "new": 1}, "new", "u")
    assert a.beat().assignment == {topic_id("t"): {0, 1, 2, 3}, topic_id("new"): {0}}
    world.change_topics({"new": 1}, "t")
    a.beat()
    a.beat()
    assert a.to_have == {topic_id("new"): {0}}


def test_other_racks_are_a_change(world: World) -> None:
    a = Consumer(world, "a", rack="x")
    a.join()
    world.change_topics({"t": [("x",)] * 4}, "t")
    assert a.beat().member_epoch == 3


# --- offsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (commit("a", 2), ErrorCode.NONE),
        (commit("a", 0), ErrorCode.STALE_MEMBER_EPOCH),
        (commit("x", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (commit("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (commit("a", 2, knows_member_epochs=False), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_commits_of_members_and_others(world: World, event: CommitOffsets, error: ErrorCode) -> None:
    Consumer(world, "a").join()
    assert world.ask(event).errors == (error,)


def test_an_empty_group_takes_commits_of_anybody(world: World) -> None:
    a = Consumer(world, "a")
    a.join()
    a.leave()
    assert world.ask(commit("", -1)).errors == (ErrorCode.NONE,)


def test_offsets_are_read_by_members_of_the_epoch_and_by_who_does_not_say(world: World) -> None:
    Consumer(world, "a").join()
    world.ask(commit("a", 2))
    topics = (TopicPartitions(TopicName("t"), (PartitionId(0),)),)
    fetch = FetchOffsets(G, topics)
    assert world.ask(fetch).topics[0].offsets[0].offset == 7
    assert world.ask(replace(fetch, member_id=MemberId("a"), member_epoch=2)).error is ErrorCode.NONE
    assert world.ask(replace(fetch, member_id=MemberId("a"), member_epoch=3)).error is ErrorCode.STALE_MEMBER_EPOCH
    assert world.ask(replace(fetch, member_id=MemberId("x"), member_epoch=2)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted_and_an_empty_one_leaves_nothing(world: World) -> None:
    a = Consumer(world, "a", [], regex="t.*")
    a.join()
    world.resolve(**{"t.*": ["t"]})
    assert world.ask(DeleteGroups((G,))) == (ErrorCode.NON_EMPTY_GROUP,)
    a.leave()
    assert world.ask(DeleteGroups((G,))) == (ErrorCode.NONE,)
    alive: dict[bytes, bytes | None] = {}
    for record in world.driver.log:
        key, value = GroupRecordFormat().encode(record)
        alive[key] = value
    assert set(alive.values()) == {None}, "a tombstone for every key"
    assert world.describe().error is ErrorCode.GROUP_ID_NOT_FOUND


# --- describing ----------------------------------------------------------------------------------------------------


def test_a_description_tells_what_members_have_and_are_to_have(world: World) -> None:
    a, b = Consumer(world, "a", rack="x"), Consumer(world, "b", instance="i")
    a.join()
    a.beat()
    b.join()
    described = world.describe()
    assert (described.state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    first, second = described.members
    assert (first.member_id, first.rack_id, first.member_epoch) == ("a", "x", 2)
    assert first.assignment[0].partitions == (0, 1, 2, 3)
    assert first.target_assignment[0].partitions == (0, 1)
    assert (second.instance_id, second.assignment, second.target_assignment[0].topic) == ("i", (), "t")


def test_a_group_is_assigning_while_its_epoch_is_ahead(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    b.leave()
    assert world.describe().state == "Assigning"


def test_groups_that_are_not_there_or_of_another_kind(world: World) -> None:
    described = world.describe()
    assert (described.error, described.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    world.ask(commit("", -1))
    assert world.describe().message == "Group g is not a consumer group."


def test_listings_are_filtered_by_kind_and_state(world: World) -> None:
    Consumer(world, "a").join()
    world.ask(commit("", -1, group_id=GroupId("simple")))
    by_kind = world.ask(ListGroups(kinds=frozenset({"consumer"})))
    by_state = world.ask(ListGroups(states=frozenset({"empty"})))
    assert ([group.group_id for group in by_kind], [group.group_id for group in by_state]) == (["g"], ["simple"])


def test_the_history_says_why_and_what_moved(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    a.join()
    b.join()
    settle(a, b)
    b.leave()
    a.beat()
    first, second, third = world.history()
    assert first.reasons == ("a joins",)
    assert (second.reasons, second.epoch, second.members, second.moved_partitions) == (("b joins",), 3, 2, 2)
    assert [(move.partitions, move.source, move.target) for move in second.moves] == [((2, 3), "a", "b")]
    assert third.reasons == ("b leaves",)
    assert [(move.partitions, move.source, move.target) for move in third.moves] == [((2, 3), None, "a")]
