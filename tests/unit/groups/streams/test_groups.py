"""Streams groups: members, topology, tasks, internal topics. Kafka's words and error codes."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.streams.groups_driver import (
    CHANGELOG,
    COUNTS,
    READS,
    S0,
    S1,
    SETTINGS,
    SINK,
    SOURCE,
    A,
    B,
    C,
    G,
    Groups,
    active,
    codes,
)

from ottla.coordination.state_machine import Append, CancelTimer, Reply, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.consumer.events import ConsumerHeartbeat, DescribeHistory, TopicsChanged
from ottla.groups.events import Assignor as ClassicAssignor
from ottla.groups.events import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    FetchOffsets,
    Join,
    ListGroups,
    OffsetToCommit,
    TopicPartitions,
)
from ottla.groups.history import Move
from ottla.groups.streams.configured import Status, StatusCode
from ottla.groups.streams.events import (
    DescribeStreamsGroups,
    EndpointPartitions,
    EndpointTopic,
    StreamsBeat,
    StreamsHeartbeat,
)
from ottla.groups.streams.members import Endpoint, MemberState
from ottla.groups.streams.records import StreamsGroupEpoch, StreamsTargetEpoch
from ottla.groups.streams.tasks import NOTHING
from ottla.groups.streams.topology import InternalTopicInfo, Subtopology, Topology
from ottla.ids import (
    GroupId,
    MemberId,
    PartitionId,
    ProducerIdAndEpoch,
    TopicName,
)

# --- joining ---------------------------------------------------------------------------------------------------


def test_the_first_member_has_all_tasks_at_once() -> None:
    groups = Groups()
    assert groups.join(A) == StreamsBeat(
        member_id=A, member_epoch=2, heartbeat_interval_ms=100, tasks=active(_0=[0, 1, 2]), endpoint_epoch=0
    )
    assert groups.group.state_name == "Stable"
    groups.now_ms += 60_000
    assert groups.beat(A, 2) == StreamsBeat(member_id=A, member_epoch=2, heartbeat_interval_ms=5_000)


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    groups = Groups()
    groups.join(A)
    written = len(groups.log)
    effects = groups.send(StreamsHeartbeat(G, A, 2, 0, None, "c", "/h"), "x")
    assert len(groups.log) == written
    assert [type(effect) for effect in effects] == [SetTimer, Reply]


def test_a_member_may_join_again_and_is_told_what_it_has() -> None:
    groups = Groups()
    first = groups.join(A)
    written = len(groups.log)
    assert groups.join(A) == first
    assert len(groups.log) == written


def test_tasks_move_only_once_they_are_given_up() -> None:
    groups = Groups()
    groups.join(A)
    assert groups.join(B).tasks == NOTHING
    assert groups.group.state_name == "Reconciling"
    told = groups.beat(A, 2)
    assert (told.member_epoch, told.tasks) == (2, active(_0=[0, 1]))
    assert groups.group.members[A].state is MemberState.UNREVOKED_TASKS
    assert ("streams-rebalance", G, A) in groups.timers
    assert groups.beat(B, 3).tasks is None, "the task is still with a"
    assert groups.beat(A, 2, active(_0=[0, 1, 2])).member_epoch == 2, "it has not given it up"
    assert groups.beat(A, 2, active(_0=[0, 1])).member_epoch == 3
    assert ("streams-rebalance", G, A) not in groups.timers
    assert groups.beat(B, 3, NOTHING).tasks == active(_0=[2])
    assert groups.group.state_name == "Stable"


def test_a_member_that_has_missed_what_to_give_up_is_told_again() -> None:
    groups = Groups()
    groups.join(A)
    groups.join(B)
    groups.beat(A, 2)
    assert groups.beat(A, 2, active(_0=[0, 1, 2])).tasks == active(_0=[0, 1])


def test_a_member_that_does_not_give_up_its_tasks_in_time_is_fenced() -> None:
    groups = Groups()
    groups.join(A)
    groups.join(B)
    groups.beat(A, 2)
    groups.pass_time(8_999)
    assert A in groups.group.members
    groups.pass_time(2)
    assert A not in groups.group.members
    assert groups.beat(B, 3).tasks == active(_0=[0, 1, 2])
    assert groups.beat(A, 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_sends_no_heartbeat_is_fenced() -> None:
    groups = Groups()
    groups.join(A)
    groups.pass_time(45_001)
    assert groups.group.state_name == "Empty"
    assert (groups.group.epoch, groups.group.assignment_epoch) == (3, 2)


def test_a_member_that_leaves_hands_its_tasks_over() -> None:
    groups = Groups()
    for member in (A, B):
        groups.join(member)
    groups.settle(A, B)
    assert groups.beat(A, -1) == StreamsBeat(member_id=A, member_epoch=-1)
    assert [key for key in groups.timers if A in key] == []
    groups.settle(B)
    assert groups.group.members[B].assigned == active(_0=[0, 1, 2])


def test_the_group_is_full_at_some_point() -> None:
    groups = Groups(max_size=1)
    groups.join(A)
    refused = groups.beat(B, 0, NOTHING, topology=READS, timeout=1)
    assert (refused.error, refused.message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 1 members.",
    )


def test_members_that_are_not_known_are_refused() -> None:
    groups = Groups()
    gone = groups.beat(A, 1)
    assert (gone.error, gone.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Streams group g not found.")
    assert groups.beat(A, -1).message == "Group g not found."
    groups.join(A)
    assert groups.beat(B, 1).message == groups.beat(B, -1).message == "Member b is not a member of group g."


def test_epochs_fence() -> None:
    groups = Groups()
    groups.join(A)
    ahead = groups.beat(A, 3)
    assert (ahead.error, ahead.message) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The streams group member has a greater member epoch (3) than the one known by the group coordinator (2). The "
        "member must abandon all its partitions and rejoin.",
    )
    assert groups.beat(A, 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    groups.make(source=4)
    assert groups.beat(A, 2).member_epoch == 3
    assert groups.beat(A, 2).error is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it has"
    assert groups.beat(A, 2, active(_0=[4])).error is ErrorCode.FENCED_MEMBER_EPOCH
    again = groups.beat(A, 2, active(_0=[0, 1]))
    assert (again.member_epoch, again.tasks) == (3, active(_0=[0, 1, 2, 3])), "the answer may have been lost"


def test_tasks_that_there_are_not_are_refused() -> None:
    groups = Groups()
    groups.join(A)
    refused = groups.beat(A, 2, active(_0=[3]))
    assert (refused.error, refused.message) == (
        ErrorCode.INVALID_REQUEST,
        "Task 3 for subtopology 0 is invalid. Number of tasks for this subtopology: 3",
    )
    assert groups.beat(A, 2, active(_7=[0])).message == "Subtopology 7 does not exist in the topology."


def test_the_first_assignment_waits_for_more_members() -> None:
    groups = Groups(SETTINGS._replace(streams_initial_rebalance_delay_ms=3_000))
    first = groups.join(A)
    assert (first.member_epoch, first.tasks) == (1, NOTHING)
    assert first.statuses == (
        Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."),
    )
    groups.join(B)
    assert groups.group.state_name == "Assigning"
    groups.pass_time(3_000)
    groups.settle(A, B)
    assert len(groups.group.members[A].assigned.active[S0]) == 2
    assert groups.group.assignment_epoch == 3, "once for both"


def test_an_assignment_stands_for_a_while() -> None:
    groups = Groups(SETTINGS._replace(streams_assignment_interval_ms=1_000))
    groups.join(A)
    delayed = groups.join(B)
    assert delayed.statuses == (
        Status(StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."),
    )
    groups.now_ms += 1_000
    groups.settle(A, B)
    assert len(groups.group.members[B].assigned.active[S0]) == 1


# --- topologies ------------------------------------------------------------------------------------------------


def test_internal_topics_are_asked_for_and_tasks_come_once_they_are_there() -> None:
    groups = Groups()
    beat = groups.join(A, COUNTS)
    assert codes(beat) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert beat.statuses[0].detail == f"Internal topics are missing: {SINK}, {CHANGELOG}"
    assert beat.create == (
        InternalTopicInfo(SINK, 3),
        InternalTopicInfo(CHANGELOG, 3, configs=(("cleanup.policy", "compact"),)),
    )
    assert beat.tasks == NOTHING
    assert groups.group.state_name == "NotReady"
    groups.make(**{SINK: 3, CHANGELOG: 3})
    beat = groups.beat(A, 2)
    assert (beat.statuses, beat.create) == ((), ())
    assert (beat.member_epoch, beat.tasks) == (3, active(_0=[0, 1, 2], _1=[0, 1, 2]))
    assert groups.group.state_name == "Stable"


def test_missing_source_topics_are_named() -> None:
    groups = Groups(other=1)
    beat = groups.join(A)
    assert beat.statuses == (Status(StatusCode.MISSING_SOURCE_TOPICS, "Source topics source are missing."),)
    assert groups.beat(A, 2).statuses == beat.statuses
    groups.make(source=1)
    assert groups.beat(A, 2).tasks == active(_0=[0])


def test_a_source_topic_that_goes_takes_the_tasks_along() -> None:
    groups = Groups()
    groups.join(A)
    del groups.known[SOURCE]
    groups.known[TopicName("other")] = 1
    groups.make()
    groups.ask(TopicsChanged(frozenset({SOURCE})))
    assert groups.beat(A, 2).tasks == NOTHING
    assert groups.group.state_name == "NotReady"
    assert groups.beat(A, 2, NOTHING).member_epoch == 3


def test_topics_with_another_number_of_partitions_are_refused() -> None:
    topics: dict[str, Any] = {SOURCE: 3, SINK: 2, CHANGELOG: 3}
    groups = Groups(**topics)
    beat = groups.join(A, COUNTS)
    assert beat.statuses == (
        Status(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Existing topic {SINK} has different number of partitions: expected 3, found 2",
        ),
    )


def test_another_topology_is_refused_and_an_older_one_is_stale() -> None:
    groups = Groups()
    groups.join(A, Topology(3, READS.subtopologies))
    for other in (Topology(3, COUNTS.subtopologies), Topology(4, READS.subtopologies)):
        refused = groups.beat(B, 0, NOTHING, topology=other, timeout=1)
        assert (refused.error, refused.message) == (
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet.",
        )
    assert B not in groups.group.members
    stale = groups.join(B, Topology(2, COUNTS.subtopologies))
    assert stale.statuses == (
        Status(StatusCode.STALE_TOPOLOGY, "The member's topology epoch 2 is behind the group's topology epoch 3."),
    )


def test_a_topology_that_makes_no_sense_makes_no_group() -> None:
    groups = Groups()
    refused = groups.beat(A, 0, NOTHING, topology=Topology(0, (Subtopology(S0),)), timeout=1)
    assert (refused.error, refused.message) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "No source topics found for subtopology 0",
    )
    assert (groups.machine.groups, groups.log) == ({}, [])


# --- settings, standby tasks -----------------------------------------------------------------------------------


def test_standby_tasks_come_and_go_with_the_setting() -> None:
    topics: dict[str, Any] = {SOURCE: 2, SINK: 2, CHANGELOG: 2}
    groups = Groups(**topics)
    for member in (A, B):
        groups.join(member, COUNTS)
    groups.settle(A, B)
    assert not groups.group.members[A].assigned.standby
    groups.settings = SETTINGS._replace(streams_num_standby_replicas=1)
    groups.settle(A, B)
    for member, other in ((A, B), (B, A)):
        have = groups.group.members[member].assigned
        assert have.standby[S1] == groups.group.members[other].assigned.active[S1]
        assert S0 not in have.standby, "it has no state"
    groups.settings = SETTINGS
    groups.settle(A, B)
    assert not groups.group.members[A].assigned.standby


def test_a_standby_task_becomes_active_where_it_is() -> None:
    groups = Groups(SETTINGS._replace(streams_num_standby_replicas=1), source=4, **{SINK: 4, CHANGELOG: 4})
    for member in (A, B, C):
        groups.join(member, COUNTS)
    groups.settle(A, B, C)
    lost = groups.group.members[A].assigned.active[S1]
    standby = {member: groups.group.members[member].assigned.standby.get(S1, frozenset()) for member in (B, C)}
    groups.beat(A, -1)
    groups.settle(B, C)
    for member in (B, C):
        assert lost & standby[member] <= groups.group.members[member].assigned.active[S1]


def test_a_task_is_never_twice_in_one_process() -> None:
    groups = Groups(SETTINGS._replace(streams_num_standby_replicas=1), source=2, **{SINK: 2, CHANGELOG: 2})
    for member in (A, B):
        groups.join(member, COUNTS, process="p")
    groups.settle(A, B)
    assert not groups.group.members[A].assigned.standby
    assert not groups.group.members[B].assigned.standby


# --- end points, shutdown --------------------------------------------------------------------------------------


def test_end_points_are_told_whenever_tasks_have_moved() -> None:
    groups = Groups()
    here, there = Endpoint("here", 1), Endpoint("there", 2)
    groups.join(A, user_endpoint=here, endpoint_epoch=-1)
    beat = groups.join(B, user_endpoint=there, endpoint_epoch=-1)
    assert beat.endpoint_epoch == 1
    groups.settle(A, B)
    epoch = groups.group.endpoint_epoch
    assert groups.beat(A, 3, endpoint_epoch=epoch).endpoints is None
    assert groups.beat(A, 3, endpoint_epoch=epoch - 1).endpoints == (
        EndpointPartitions(there, (EndpointTopic(SOURCE, (2,)),), ()),
        EndpointPartitions(here, (EndpointTopic(SOURCE, (0, 1)),), ()),
    )


def test_end_points_of_a_group_without_its_topics() -> None:
    groups = Groups(other=1)
    beat = groups.join(A, user_endpoint=Endpoint("here", 1), endpoint_epoch=-1)
    assert beat.endpoints == (EndpointPartitions(Endpoint("here", 1), (), ()),)


@pytest.mark.parametrize("epoch", [2, -1], ids=["staying", "leaving"])
def test_the_whole_application_is_stopped(epoch: int) -> None:
    groups = Groups()
    groups.join(A)
    groups.join(B)
    groups.beat(A, epoch, shutdown=True)
    (status,) = groups.beat(B, 3).statuses
    assert status.code is StatusCode.SHUTDOWN_APPLICATION
    assert "member a encountered a fatal error" in status.detail
    for member in groups.group.members.copy():
        groups.beat(member, -1)
    assert codes(groups.join(C)) == [], "a group that was empty starts over"


# --- offsets ---------------------------------------------------------------------------------------------------


def commit(
    groups: Groups, member: MemberId, epoch: int, *partitions: int, transactional: bool = False, version: int = 9
) -> ErrorCode:
    offsets = tuple(OffsetToCommit(SOURCE, PartitionId(index), 1) for index in partitions or (0,))
    producer = ProducerIdAndEpoch(1, 0) if transactional else None
    event = CommitOffsets(G, member, None, epoch, offsets, knows_member_epochs=version >= 9, producer=producer)
    errors = set(groups.ask(event).errors)
    assert len(errors) == 1
    return ErrorCode(errors.pop())


def test_members_commit_with_their_epoch() -> None:
    groups = Groups()
    groups.join(A)
    assert commit(groups, A, 2) is ErrorCode.NONE
    assert commit(groups, A, 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(groups, A, 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(groups, A, 3, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert commit(groups, B, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(groups, MemberId(""), -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(groups, MemberId(""), -1, transactional=True) is ErrorCode.NONE


@pytest.mark.parametrize("transactional", [False, True])
def test_an_older_epoch_may_commit_for_tasks_that_were_there_already(transactional: bool) -> None:
    stale = ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH
    groups = Groups()
    groups.join(A)
    groups.make(source=4)
    groups.settle(A)
    assert groups.group.members[A].epoch == 3
    assert commit(groups, A, 2, 0, 2, transactional=transactional) is ErrorCode.NONE
    assert commit(groups, A, 2, 3, transactional=transactional) is stale, "assigned at epoch 3"
    assert commit(groups, A, 1, 0, transactional=transactional) is stale
    groups.join(B)
    groups.beat(A, 3)
    given_up = next(iter(groups.group.members[A].pending_revocation.active[S0]))
    assert commit(groups, A, 3, given_up, transactional=transactional) is ErrorCode.NONE


def test_offsets_are_read_with_the_epoch() -> None:
    groups = Groups()
    groups.join(A)
    commit(groups, A, 2)
    asked = (TopicPartitions(SOURCE, (PartitionId(0),)),)
    fetched = groups.ask(FetchOffsets(G, asked, member_id=A, member_epoch=2))
    assert fetched.topics[0].offsets[0].offset == 1
    assert groups.ask(FetchOffsets(G, asked, member_id=A, member_epoch=1)).error is ErrorCode.STALE_MEMBER_EPOCH
    assert groups.ask(FetchOffsets(G, asked, member_id=B, member_epoch=1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.ask(FetchOffsets(G, asked)).error is ErrorCode.NONE


def test_offsets_in_topics_that_are_read_stay() -> None:
    groups = Groups()
    groups.join(A)
    commit(groups, A, 2)
    deletion = DeleteOffsets(G, (TopicPartitions(SOURCE, (PartitionId(0),)),))
    assert groups.ask(deletion).topics == ((SOURCE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    groups.beat(A, -1)
    assert groups.ask(replace(deletion)).topics == ((SOURCE, ErrorCode.NONE),)


def test_an_empty_group_goes_with_its_last_offset() -> None:
    groups = Groups()
    groups.carry_out(groups.machine.loaded(groups.now_ms))
    groups.join(A)
    commit(groups, A, 2)
    groups.beat(A, -1)
    groups.pass_time(8 * 24 * 3_600_000)
    assert groups.machine.groups == {}
    assert groups.successor().machine.groups == {}


# --- beside groups of other kinds ------------------------------------------------------------------------------


def test_groups_are_listed_and_deleted() -> None:
    groups = Groups()
    groups.join(A)
    (listing,) = groups.ask(ListGroups(frozenset(), frozenset({"streams"})))
    assert listing == (G, "streams", "Stable", "streams")
    assert groups.ask(ListGroups(frozenset(), frozenset({"consumer"}))) == ()
    assert groups.ask(ListGroups(frozenset({"stable"}), frozenset())) == (listing,)
    assert groups.ask(DeleteGroups((G,))) == (ErrorCode.NON_EMPTY_GROUP,)
    groups.beat(A, -1)
    assert groups.ask(DeleteGroups((G,))) == (ErrorCode.NONE,)
    assert groups.machine.groups == groups.successor().machine.groups == {}


def join_event() -> Join:
    ranged = ClassicAssignor("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")
    return Join(G, MemberId(""), None, "c", "/h", "consumer", (ranged,), 6_000, 6_000, requires_member_id=False)


def test_a_streams_group_with_members_is_no_classic_one() -> None:
    groups = Groups()
    groups.join(A)
    assert groups.ask(join_event()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = groups.ask(ConsumerHeartbeat(G, B, 0, None, None, "c", "/h", 1, frozenset({SOURCE}), None, None, {}))
    assert (other.error, other.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


def test_an_empty_streams_group_becomes_a_classic_one_and_back() -> None:
    groups = Groups()
    groups.join(A)
    commit(groups, A, 2)
    groups.beat(A, -1)
    groups.send(join_event(), "classic")
    groups.pass_time(10_000, until=lambda: not groups.waits("classic"))
    assert groups.machine.groups[G].kind == "classic"
    assert groups.beat(A, 0, NOTHING, topology=READS, timeout=1).message == "Group g is not a streams group."
    groups.pass_time(60_000)
    assert groups.machine.groups[G].is_empty
    assert groups.join(A).tasks == active(_0=[0, 1, 2])
    assert groups.successor().group.members.keys() == {A}
    asked = (TopicPartitions(SOURCE, (PartitionId(0),)),)
    assert groups.ask(FetchOffsets(G, asked)).topics[0].offsets[0].offset == 1


def test_offsets_that_nobody_was_a_member_for_are_taken_over() -> None:
    groups = Groups()
    assert commit(groups, MemberId(""), -1) is ErrorCode.NONE
    groups.join(A)
    successor = groups.successor()
    assert successor.group.members[A].epoch == 2
    assert commit(successor, A, 2) is ErrorCode.NONE


def test_a_group_is_described() -> None:
    groups = Groups()
    groups.join(A, COUNTS, client_tags={"zone": "z"}, user_endpoint=Endpoint("here", 1))
    (found, missing) = groups.ask(DescribeStreamsGroups((G, GroupId("other"))))
    assert (missing.error, missing.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group other not found.")
    assert (found.state, found.group_epoch, found.assignment_epoch) == ("NotReady", 2, 2)
    assert found.topology is not None
    assert found.topology.subtopologies[1].state_changelog_topics[0].partitions == 0
    groups.make(**{SINK: 3, CHANGELOG: 3})
    groups.settle(A)
    (found,) = groups.ask(DescribeStreamsGroups((G,)))
    assert found.topology is not None
    assert found.topology.subtopologies[1].state_changelog_topics[0].partitions == 3
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.process_id) == (A, 3, "p-a")
    assert member.assignment == member.target == active(_0=[0, 1, 2], _1=[0, 1, 2])
    assert (member.client_tags, member.user_endpoint) == ({"zone": "z"}, Endpoint("here", 1))


def test_history_tells_what_moved() -> None:
    groups = Groups(SETTINGS._replace(streams_num_standby_replicas=1), source=1, **{SINK: 1, CHANGELOG: 1})
    groups.join(A, COUNTS)
    groups.join(B, COUNTS)
    first, second = groups.ask(DescribeHistory(G)).rebalances
    assert (first.protocol, first.assignor, first.members) == ("streams", "sticky", 1)
    assert first.reasons == ("a joins", "the group is new")
    assert second.reasons == ("b joins",)
    assert Move(TopicName("subtopology 1 (standby)"), (0,), None, B) in second.moves or (
        Move(TopicName("subtopology 1"), (0,), A, B) in second.moves
    )


# --- what lasts ------------------------------------------------------------------------------------------------


def test_a_successor_knows_everything() -> None:
    groups = Groups(SETTINGS._replace(streams_num_standby_replicas=1), source=3, **{SINK: 3, CHANGELOG: 3})
    groups.join(A, COUNTS, client_tags={"zone": "z"}, user_endpoint=Endpoint("here", 1), rack="r")
    groups.join(B, COUNTS)
    groups.beat(A, 2)
    old, new = groups.group, groups.successor()
    for name in ("epoch", "metadata_hash", "validated_topology_epoch", "assignment_configs", "assignment_epoch"):
        assert getattr(new.group, name) == getattr(old, name)
    assert (new.group.assigned_at_ms, new.group.topology) == (old.assigned_at_ms, old.topology)
    assert (new.group.members, new.group.target) == (old.members, old.target)
    assert {key for key in new.timers if key[0].startswith("streams")} == {
        ("streams-session", G, A),
        ("streams-session", G, B),
        ("streams-rebalance", G, A),
    }
    new.settle(A, B)
    assert new.group.state_name == "Stable"
    assert not any(isinstance(record, StreamsGroupEpoch) for record in new.log), "no rebalance for it"


def test_a_state_of_later_versions_is_fenced() -> None:
    groups = Groups()
    groups.join(A)
    member = groups.group.members[A]
    groups.group.members[A] = member._replace(state=MemberState.UNKNOWN)
    assert groups.beat(A, 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert groups.beat(A, 2, active(_0=[0])).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert groups.beat(A, 2, NOTHING).error is ErrorCode.NONE


def test_the_delayed_assignment_of_a_group_that_went_is_left_out() -> None:
    groups = Groups(SETTINGS._replace(streams_initial_rebalance_delay_ms=3_000))
    groups.join(A)
    groups.beat(A, -1)
    assert not any(isinstance(effect, Append) for effect in groups.pass_time(3_000))
    assert not any(isinstance(record, StreamsTargetEpoch) for record in groups.log)
    assert groups.join(A).tasks == NOTHING
    groups.pass_time(3_000)
    groups.settle(A)
    assert groups.group.members[A].assigned == active(_0=[0, 1, 2])


def test_timers_of_a_member_that_leaves_are_forgotten() -> None:
    groups = Groups()
    groups.join(A)
    effects = groups.send(StreamsHeartbeat(G, A, -1, 0, None, "c", "/h"), "x")
    assert CancelTimer(("streams-session", G, A)) in effects
