"""Groups that change between the classic and the consumer protocol with members in them, both ways (KIP-848)."""

from dataclasses import replace

import pytest
from tests.support.classic_members import FIRST_REBALANCE_MS, REBALANCE, Classic, assignment, classic_group, settle_all
from tests.support.consumer_members import Consumer, G, World, settle, topic_id

from ottla.errors import ErrorCode
from ottla.groups.events import (
    NO_MEMBER,
    Assignor,
    CommitOffsets,
    FetchOffsets,
    Leave,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
)
from ottla.ids import InstanceId, MemberId, PartitionId, TopicName

EVERYTHING = ["t-0", "t-1", "t-2", "t-3"]


def kind_of_group(world: World) -> str:
    (listing,) = world.ask(ListGroups())
    kind: str = listing.group_type
    return kind


@pytest.fixture
def world() -> World:
    return World({"t": 4})


# --- classic to consumer -----------------------------------------------------------------------------------------


def test_a_classic_group_becomes_a_consumer_group_when_somebody_joins_with_the_new_protocol(world: World) -> None:
    old = Classic(world)
    classic_group(world, old, give=[(0, 1, 2, 3)])
    new = Consumer(world, "new")
    assert new.join().error is ErrorCode.NONE
    assert kind_of_group(world) == "consumer"
    assert new.to_have == {}, "the classic member still has everything"
    members = {member.member_id: member for member in world.describe().members}
    assert members[old.member_id].is_classic
    assert not members[MemberId("new")].is_classic
    settle_all(old, new)
    assert (old.partitions, new.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])
    assert world.describe().state == "Stable"


def test_a_classic_member_is_told_by_heartbeats_and_assigned_by_syncs(world: World) -> None:
    old, new = Classic(world), Consumer(world, "new")
    classic_group(world, old, give=[(0, 1, 2, 3)])
    assert old.beat() is ErrorCode.NONE
    new.join()
    assert old.beat() is REBALANCE
    joined = old.join()
    assert (joined.error, joined.protocol_name, joined.leader, joined.members) == (ErrorCode.NONE, "range", "", ())
    assert joined.generation == 1, "it has to give up something before it enters epoch 2"
    old.sync()
    assert old.partitions == ["t-0", "t-1"]
    assert old.beat() is REBALANCE, "to say that it has given it up"
    assert old.join().generation == 2
    old.sync()
    assert old.beat() is ErrorCode.NONE
    settle(new, rounds=1)
    assert new.to_have == {topic_id("t"): {2, 3}}


def test_the_history_knows_of_both_lives(world: World) -> None:
    old, new = Classic(world), Consumer(world, "new")
    classic_group(world, old, give=[(0, 1, 2, 3)])
    new.join()
    first, second = world.history()
    assert (first.protocol, second.protocol) == ("classic", "consumer")
    assert [(move.partitions, move.source, move.target) for move in first.moves] == [
        ((0, 1, 2, 3), None, old.member_id)
    ]
    assert [(move.source, move.target) for move in second.moves] == [(old.member_id, "new")]


def test_an_empty_classic_group_becomes_one_too_and_keeps_its_offsets(world: World) -> None:
    offset = OffsetToCommit(TopicName("t"), PartitionId(0), 7)
    world.ask(CommitOffsets(G, NO_MEMBER, None, -1, (offset,)))
    old = Classic(world)
    classic_group(world, old, give=[(0, 1, 2, 3)])
    world.ask(Leave(G, (LeavingMember(old.member_id),)))
    new = Consumer(world, "new")
    new.join()
    world.restart()
    assert kind_of_group(world) == "consumer"
    assert world.ask(FetchOffsets(G, None)).topics[0].offsets[0].offset == 7


def test_who_waits_in_a_classic_rebalance_is_sent_back_to_join(world: World) -> None:
    first, second = Classic(world), Classic(world)
    classic_group(world, first, give=[(0, 1, 2, 3)])
    joining = second.start_join()
    new = Consumer(world, "new")
    assert new.join().error is ErrorCode.NONE
    sent_back = second.finish_join(joining)
    assert sent_back.error is REBALANCE
    second.member_id = sent_back.member_id
    second.join()
    settle_all(first, second, new)
    assert sorted(first.partitions + second.partitions + new.partitions) == EVERYTHING


def test_who_waits_in_a_classic_group_goes_on_waiting_if_the_new_member_is_refused(world: World) -> None:
    first, second = Classic(world), Classic(world)
    classic_group(world, first, give=[(0, 1, 2, 3)])
    joining = second.start_join()
    assert Consumer(world, "new", [], regex="(").join().error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert kind_of_group(world) == "classic"
    assert world.driver.waits(joining)
    again = first.start_join()
    assert first.finish_join(again).error is ErrorCode.NONE
    assert second.finish_join(joining).generation == first.generation


def test_a_group_may_become_one_before_its_first_rebalance(world: World) -> None:
    first, new = Classic(world), Consumer(world, "new")
    joining = first.start_join()
    assert new.join().error is ErrorCode.NONE
    sent_back = first.finish_join(joining)
    assert sent_back.error is REBALANCE
    first.member_id = sent_back.member_id
    first.join()
    first.sync()
    settle_all(first, new)
    assert sorted(first.partitions + new.partitions) == EVERYTHING


def test_who_waits_for_its_assignment_is_sent_back_too(world: World) -> None:
    leader, other = Classic(world), Classic(world)
    tokens = leader.start_join(), other.start_join()
    world.driver.pass_time(FIRST_REBALANCE_MS)
    leader.finish_join(tokens[0])
    other.finish_join(tokens[1])
    token = other.start_sync()
    Consumer(world, "new").join()
    assert other.finish_sync(token).error is REBALANCE


@pytest.mark.parametrize("policy", ["disabled", "DOWNGRADE"])
def test_a_group_may_be_forbidden_to_become_one(policy: str) -> None:
    world = World({"t": 4}, group_consumer_migration_policy=policy)
    classic_group(world, Classic(world), give=[(0, 1, 2, 3)])
    beat = Consumer(world, "new").join()
    assert beat.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert beat.message == "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    assert kind_of_group(world) == "classic"


def test_a_group_that_is_too_large_or_not_of_consumers_is_not_converted() -> None:
    world = World({"t": 4}, group_consumer_max_size=1)
    old = Classic(world)
    classic_group(world, old, Classic(world), give=[(0, 1), (2, 3)])
    beat = Consumer(world, "new").join()
    assert (beat.error, "exceeds" in str(beat.message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    world = World({"t": 4})
    worker = Classic(world)
    worker.start_join(protocol_type="connect")
    beat = Consumer(world, "new").join()
    assert (beat.error, "embedded protocol" in str(beat.message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


def test_what_an_assignor_of_the_clients_own_told_members_would_be_lost(world: World) -> None:
    old = Classic(world)
    token = old.start_join()
    world.driver.pass_time(FIRST_REBALANCE_MS)
    old.finish_join(token)
    old.sync({old.member_id: assignment(0, 1, 2, 3, user_data=b"secret")})
    beat = Consumer(world, "new").join()
    assert (beat.error, "custom assignor" in str(beat.message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_what_a_sticky_assignor_remembers_is_needed_no_more(world: World, assignor: str) -> None:
    old = Classic(world, protocols=(assignor,))
    token = old.start_join()
    world.driver.pass_time(FIRST_REBALANCE_MS)
    old.finish_join(token)
    old.sync({old.member_id: assignment(0, 1, 2, 3, user_data=b"who had what")})
    assert Consumer(world, "new").join().error is ErrorCode.NONE


def test_malformed_subscriptions_are_not_converted(world: World) -> None:
    old = Classic(world)
    token = old.start_join(protocols=(Assignor("range", b"\0"),))
    world.driver.pass_time(FIRST_REBALANCE_MS)
    old.finish_join(token)
    old.sync({old.member_id: assignment()})
    beat = Consumer(world, "new").join()
    assert (beat.error, "malformed" in str(beat.message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert old.beat() is ErrorCode.NONE


# --- classic members in a consumer group -------------------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(world: World) -> None:
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    new.beat()
    first = old.join(requires_member_id=True)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    old.member_id = first.member_id
    assert old.join(requires_member_id=True).generation == 3
    old.sync()
    assert old.partitions == []
    settle_all(new, old)
    assert sorted(new.partitions + old.partitions) == EVERYTHING
    assert len(old.partitions) == 2


def test_a_classic_member_that_the_others_have_no_protocol_with_is_refused(world: World) -> None:
    Consumer(world, "new").join()
    Classic(world, protocols=["range", "sticky"]).join()
    assert Classic(world, protocols=["roundrobin"]).join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Classic(world).join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Classic(world, protocols=["sticky"]).join().error is ErrorCode.NONE


def test_requests_that_do_not_fit_the_member(world: World) -> None:
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    old.join()
    old.generation += 1
    assert (old.beat(), old.sync().error) == (ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION)
    old.generation -= 1
    stranger = Classic(world)
    stranger.member_id = MemberId("x")
    assert (stranger.beat(), stranger.sync().error) == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
    stranger.member_id = new.member_id
    stranger.generation = new.epoch
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak the classic protocol"
    old.joined = old.joined._replace(protocol_name="sticky") if old.joined is not None else None
    assert old.sync().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_commits_of_classic_members_name_a_generation(world: World) -> None:
    Consumer(world, "new").join()
    old = Classic(world)
    old.join()
    offset = OffsetToCommit(TopicName("t"), PartitionId(0), 7)
    commit = CommitOffsets(G, old.member_id, None, old.generation, (offset,), knows_member_epochs=False)
    assert world.ask(commit).errors == (ErrorCode.NONE,)
    assert world.ask(replace(commit, generation=9)).errors == (ErrorCode.ILLEGAL_GENERATION,)


def test_a_classic_member_that_is_told_to_join_and_does_not_is_removed(world: World) -> None:
    old, new = Classic(world), Consumer(world, "new")
    classic_group(world, old, give=[(0, 1, 2, 3)])
    new.join()
    for _ in range(4):
        assert old.beat() is REBALANCE
        new.beat()
        world.driver.pass_time(5_000)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    settle(new)
    assert new.partitions == EVERYTHING


def test_a_classic_member_that_joins_and_does_not_sync_is_removed(world: World) -> None:
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    old.join()
    for _ in range(4):
        old.beat()
        new.beat()
        world.driver.pass_time(5_000)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_has_its_own_session_timeout(world: World) -> None:
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    old.join()
    old.sync()
    settle_all(new, old)
    world.driver.pass_time(9_999)
    assert old.beat() is ErrorCode.NONE
    world.driver.pass_time(10_000)
    new.beat()
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions(world: World) -> None:
    old, other = Classic(world, instance="i"), Classic(world)
    classic_group(world, old, other, give=[(0, 1), (2, 3)])
    new = Consumer(world, "new", instance="i")
    new.join()
    assert new.to_have == {topic_id("t"): {0, 1}}
    assert (new.epoch, world.describe().group_epoch) == (1, 1), "nothing has changed but its protocol"
    settle_all(new, other)
    assert (new.partitions, other.partitions) == (["t-0", "t-1"], ["t-2", "t-3"])
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_members_of_either_protocol_are_removed_by_an_administrator(world: World) -> None:
    Consumer(world, "a", instance="i").join()
    Consumer(world, "b").join()
    Classic(world).join()
    gone = (LeavingMember(NO_MEMBER, InstanceId("i")), LeavingMember(MemberId("b")), LeavingMember(MemberId("x")))
    left = world.ask(Leave(G, (*gone, LeavingMember(MemberId("b"), InstanceId("i")))))
    assert left.errors == (
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )


def test_a_request_without_anybody_to_remove_changes_nothing(world: World) -> None:
    Consumer(world, "a").join()
    before = len(world.driver.log)
    assert world.ask(Leave(G, (LeavingMember(MemberId("x")),))).errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert len(world.driver.log) == before


# --- consumer to classic -----------------------------------------------------------------------------------------


def mixed(world: World) -> tuple[Classic, Consumer]:
    old, new = Classic(world), Consumer(world, "new")
    classic_group(world, old, give=[(0, 1, 2, 3)])
    new.join()
    settle_all(old, new)
    return old, new


def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_leaves(world: World) -> None:
    old, new = mixed(world)
    new.leave()
    world.driver.pass_time(0)
    assert kind_of_group(world) == "classic"
    assert old.beat() is REBALANCE
    token = old.start_join()
    world.driver.pass_time(0)
    assert old.finish_join(token).generation == 3
    assert old.joined is not None
    assert old.joined.leader == old.member_id
    old.sync({old.member_id: assignment(0, 1, 2, 3)})
    assert old.partitions == EVERYTHING


def test_the_group_is_classic_again_when_that_member_fails(world: World) -> None:
    old, _ = mixed(world)
    for _ in range(9):
        world.driver.pass_time(5_000)
        old.beat()
    assert kind_of_group(world) == "classic"


def test_a_coordinator_that_crashes_before_the_rebalance_leaves_it_to_the_next(world: World) -> None:
    """Otherwise nobody would ever read what the last member of the new protocol had."""
    old, new = mixed(world)
    new.leave()
    world.restart()
    assert kind_of_group(world) == "classic"
    assert old.beat() is REBALANCE
    for _ in range(2):
        settle_all(old)
        world.driver.pass_time(3_000)
    assert old.partitions == EVERYTHING
    world.restart()
    assert old.beat() is ErrorCode.NONE, "and it is done"


def test_a_static_member_of_the_classic_protocol_takes_the_last_place_of_the_new_one(world: World) -> None:
    old, new = Classic(world), Consumer(world, "new", instance="i")
    classic_group(world, old, give=[(0, 1, 2, 3)])
    new.join()
    settle_all(old, new)
    back = Classic(world, instance="i")
    joined = back.join()
    assert (joined.error, kind_of_group(world)) == (ErrorCode.NONE, "classic")
    back.sync()
    assert back.partitions == new.partitions, "no rebalance: it has what its instance had"
    assert (old.beat(), back.beat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_group_that_fits_into_no_record_does_not_become_classic() -> None:
    """Or the machine would fail again and again to write it, and nobody in the partition would be served."""
    world = World({"t": 4}, max_record_bytes=10)
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    old.join()
    settle_all(new, old)
    new.leave()
    assert kind_of_group(world) == "consumer"
    settle_all(old)
    assert old.partitions == EVERYTHING


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_group_may_be_forbidden_to_become_classic(policy: str) -> None:
    world = World({"t": 4}, group_consumer_migration_policy=policy)
    new, old = Consumer(world, "new"), Classic(world)
    new.join()
    old.join()
    old.sync()
    new.leave()
    world.driver.pass_time(0)
    assert kind_of_group(world) == "consumer"
    settle_all(old)
    assert old.partitions == EVERYTHING


def test_a_group_too_large_for_a_classic_one_stays(world: World) -> None:
    world = World({"t": 4}, group_max_size=1)
    new = Consumer(world, "new")
    new.join()
    for member in (Classic(world), Classic(world)):
        member.join()
        member.sync()
    new.leave()
    world.driver.pass_time(0)
    assert kind_of_group(world) == "consumer"


def test_an_empty_consumer_group_becomes_classic_with_the_first_classic_member(world: World) -> None:
    new = Consumer(world, "new")
    new.join()
    new.leave()
    old = Classic(world)
    classic_group(world, old, give=[(0, 1, 2, 3)])
    assert kind_of_group(world) == "classic"
    world.restart()
    assert kind_of_group(world) == "classic"
    assert old.beat() is ErrorCode.NONE


def test_there_and_back_member_by_member(world: World) -> None:
    a, b = Classic(world), Classic(world)
    classic_group(world, a, b, give=[(0, 1), (2, 3)])
    news = []
    for number, member in enumerate((a, b)):
        world.ask(Leave(G, (LeavingMember(member.member_id),)))
        news.append(Consumer(world, f"n{number}"))
        news[-1].join()
        settle_all(*news, *([b] if number == 0 else []))
        assert kind_of_group(world) == "consumer"
    assert sorted(news[0].partitions + news[1].partitions) == EVERYTHING
    world.restart()
    c = Classic(world)
    news[0].leave()
    c.join()
    c.sync()
    settle_all(c, news[1])
    assert sorted(c.partitions + news[1].partitions) == EVERYTHING
    news[1].leave()
    world.driver.pass_time(0)
    assert kind_of_group(world) == "classic"
