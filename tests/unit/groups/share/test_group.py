"""Share groups: who is in, who reads what, whose state is kept. Kafka's words and error codes."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.support.state_machines import Driver

from ottla.config.group_settings import GroupSettings
from ottla.coordination.state_machine import Reply, SetTimer
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.events import DescribeHistory, Partitions
from ottla.groups.environment import GroupEnvironment
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
from ottla.groups.share.events import (
    AlterShareOffsets,
    DeleteShareGroup,
    DeleteShareOffsets,
    DescribeShareGroups,
    FindSharePartitions,
    ForgetShareTopics,
    RefreshShareMember,
    ShareBeat,
    ShareDeletion,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsAltered,
    ShareOffsetsDeleted,
    ShareStateFailed,
    ShareStateInitialized,
)
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.records import ShareAssignment, ShareGroupEpoch, ShareMemberMetadata, ShareStatePartitions
from ottla.groups.state_machine import GroupMachine
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, TopicId, TopicName

G = GroupId("g")
A, B = MemberId("a"), MemberId("b")
T, U = TopicName("t"), TopicName("u")
T_ID, U_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))
SETTINGS = GroupSettings(
    share_assignment_interval_ms=0, share_heartbeat_interval_ms=1_000, share_session_timeout_ms=9_000
)


def topic(name: TopicName, topic_id: TopicId, partitions: int) -> Topic:
    return Topic(name, topic_id, ((),) * partitions)


class Groups(Driver):
    """A machine with topics around it, which does at once what share groups ask of others."""

    def __init__(self, *topics: Topic, initializes: bool = True, max_size: int = 200) -> None:
        self.topics = FixedTopics(topics or (topic(T, T_ID, 3),))
        self.config = GroupConfig(group_share_max_size=max_size, offsets_commit_timeout_ms=1_000)
        super().__init__(self.new_machine())
        self.initializes = initializes

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.config, lambda: "uuid", GroupEnvironment(lambda: self.topics, lambda group: SETTINGS))

    def beat(
        self, member: MemberId, epoch: int, *names: TopicName, group: GroupId = G, rack: str | None = None
    ) -> ShareBeat:
        topic_names = frozenset(names) if names else None
        beat: ShareBeat = self.ask(ShareHeartbeat(group, member, epoch, rack, "c", "/h", topic_names))
        if beat.initialize is not None and self.initializes:
            self.ask(ShareStateInitialized(group, beat.initialize.partitions))
        return beat

    def join(self, member: MemberId, *names: TopicName) -> int:
        """Join, and be told what there is to read; the member's epoch."""
        beat = self.beat(member, 0, *(names or (T,)))
        assert beat.error is ErrorCode.NONE, beat
        return int(self.ask(RefreshShareMember(G, member, 0)).member_epoch)

    @property
    def group(self) -> ShareGroup:
        group = self.machine.groups[G]
        assert isinstance(group, ShareGroup)
        return group

    def partitions_of(self, member: MemberId) -> Partitions:
        return self.group.members[member].assigned


def everything(of: ShareGroup) -> object:
    """What a successor has to know."""
    return of.epoch, of.metadata_hash, of.assignment_epoch, of.members, of.target, of.state_partitions


# --- joining and reading ---------------------------------------------------------------------------------------


def test_the_first_heartbeat_asks_for_state_and_the_next_brings_partitions() -> None:
    groups = Groups()
    first = groups.beat(A, 0, T)
    assert first == ShareBeat(
        member_id=A, member_epoch=2, heartbeat_interval_ms=250, assignment={}, initialize=first.initialize
    )
    assert first.initialize is not None
    assert first.initialize.state_epoch == 2
    assert first.initialize.start_offsets == {T_ID: {0: -1, 1: -1, 2: -1}}
    assert first.initialize.anew == frozenset()
    second = groups.beat(A, 2)
    assert second == ShareBeat(
        member_id=A, member_epoch=3, heartbeat_interval_ms=1_000, assignment={T_ID: frozenset({0, 1, 2})}
    )
    assert groups.beat(A, 3) == ShareBeat(member_id=A, member_epoch=3, heartbeat_interval_ms=1_000)


def test_a_heartbeat_may_be_answered_anew_with_what_there_is_meanwhile() -> None:
    groups = Groups()
    groups.beat(A, 0, T)
    again = groups.ask(RefreshShareMember(G, A, 0))
    assert (again.member_epoch, again.assignment) == (3, {T_ID: frozenset({0, 1, 2})})
    assert groups.beat(A, 0, T).error is ErrorCode.NONE, "the answer got lost: it comes again as it was"
    assert groups.ask(RefreshShareMember(G, B, 0)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    groups = Groups()
    epoch = groups.join(A)
    groups.beat(A, epoch)
    effects = groups.send(ShareHeartbeat(G, A, epoch, None, "c", "/h", None), "quiet")
    assert [type(effect) for effect in effects] == [SetTimer, Reply]
    full = groups.beat(A, epoch, T)
    assert full.assignment == {T_ID: frozenset({0, 1, 2})}, "a full request has a full answer"


def test_partitions_are_shared_out_among_members() -> None:
    groups = Groups(topic(T, T_ID, 8))
    a = groups.join(A)
    groups.join(B)
    beat = groups.beat(A, a)
    assert beat.assignment is not None
    assert beat.assignment[T_ID] | groups.partitions_of(B)[T_ID] == frozenset(range(8))
    assert len(beat.assignment[T_ID]) < 8


def test_what_a_leaver_read_goes_to_others() -> None:
    groups = Groups(topic(T, T_ID, 8))
    a = groups.join(A)
    b = groups.join(B)
    a = groups.beat(A, a).member_epoch
    left = groups.beat(B, -1)
    assert (left.error, left.member_id, left.member_epoch) == (ErrorCode.NONE, B, -1)
    assert groups.beat(A, a).assignment == {T_ID: frozenset(range(8))}
    assert groups.beat(B, b).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_sends_no_heartbeat_is_out() -> None:
    groups = Groups()
    epoch = groups.join(A)
    groups.pass_time(8_000)
    groups.beat(A, epoch)
    groups.pass_time(8_999)
    assert not groups.group.is_empty
    groups.pass_time(1)
    assert groups.group.is_empty
    assert groups.beat(A, epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_subscription_brings_other_partitions() -> None:
    groups = Groups(topic(T, T_ID, 2), topic(U, U_ID, 1))
    epoch = groups.join(A)
    epoch = groups.beat(A, epoch, U).member_epoch
    beat = groups.beat(A, epoch)
    assert beat.assignment == {U_ID: frozenset({0})}
    epoch = beat.member_epoch
    assert [groups.beat(A, epoch).member_epoch for _ in range(3)] == [epoch] * 3, "initialized, but read by nobody"


def test_a_topic_that_comes_later_is_read_then() -> None:
    groups = Groups()
    epoch = groups.join(A, T, U)
    groups.topics = FixedTopics([topic(T, T_ID, 4), topic(U, U_ID, 1)], version=1)
    beat = groups.beat(A, epoch)
    assert beat.initialize is not None
    assert beat.initialize.start_offsets == {T_ID: {3: -1}, U_ID: {0: -1}}
    assert groups.beat(A, beat.member_epoch).assignment == {T_ID: frozenset(range(4)), U_ID: frozenset({0})}


def test_other_topics_do_not_matter() -> None:
    groups = Groups()
    epoch = groups.join(A)
    groups.topics = FixedTopics([topic(T, T_ID, 3), topic(U, U_ID, 1)], version=1)
    written = len(groups.log)
    assert groups.beat(A, epoch).member_epoch == epoch
    assert len(groups.log) == written


def test_what_a_member_says_of_itself_is_kept() -> None:
    groups = Groups()
    groups.beat(A, 0, T, rack="r1")
    records = [record for record in groups.log if isinstance(record, ShareMemberMetadata)]
    assert records == [ShareMemberMetadata(G, A, "r1", "c", "/h", frozenset({T}))]
    groups.beat(A, 2, rack="r2")
    assert groups.group.members[A].rack_id == "r2"


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "epoch", "error", "words"),
    [
        (A, 4, ErrorCode.FENCED_MEMBER_EPOCH, "greater member epoch (4)"),
        (A, 0, ErrorCode.NONE, ""),
        (A, 2, ErrorCode.FENCED_MEMBER_EPOCH, "does not match the previous member epoch (0)"),
        (B, 2, ErrorCode.GROUP_MAX_SIZE_REACHED, "maximum capacity of 1 members"),  # as in Kafka: looked at first
        (B, -1, ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group g."),
        (B, 0, ErrorCode.GROUP_MAX_SIZE_REACHED, "maximum capacity of 1 members"),
    ],
)
def test_heartbeats_that_do_not_fit(member: MemberId, epoch: int, error: ErrorCode, words: str) -> None:
    groups = Groups(max_size=1)
    assert groups.join(A) == 3
    written = len(groups.log)
    beat = groups.beat(member, epoch, T)
    assert beat.error is error
    assert words in (beat.message or "")
    assert len(groups.log) == written


def test_a_member_that_is_not_there() -> None:
    groups = Groups()
    groups.join(A)
    beat = groups.beat(B, 2)
    assert (beat.error, beat.message) == (ErrorCode.UNKNOWN_MEMBER_ID, "Member b is not a member of group g.")


@pytest.mark.parametrize(("epoch", "words"), [(1, "Share group g not found."), (-1, "Group g not found.")])
def test_a_group_that_is_not_there(epoch: int, words: str) -> None:
    groups = Groups()
    beat = groups.beat(A, epoch)
    assert (beat.error, beat.message) == (ErrorCode.GROUP_ID_NOT_FOUND, words)
    assert groups.machine.groups == {}


@pytest.mark.parametrize("epoch", [0, 1, -1])
def test_a_group_of_another_kind(epoch: int) -> None:
    groups = Groups()
    commit = (OffsetToCommit(T, PartitionId(0), 7),)
    groups.ask(CommitOffsets(G, MemberId(""), None, -1, commit))
    beat = groups.beat(A, epoch, T)
    assert (beat.error, beat.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")


def test_what_other_kinds_can_do_share_groups_cannot() -> None:
    groups = Groups()
    groups.join(A)
    commit = (OffsetToCommit(T, PartitionId(0), 7),)
    assert groups.ask(CommitOffsets(G, MemberId(""), None, -1, commit)).errors == (ErrorCode.GROUP_ID_NOT_FOUND,)
    assert groups.ask(CommitOffsets(G, A, InstanceId("i"), 2, commit)).errors == (ErrorCode.GROUP_ID_NOT_FOUND,)
    offsets = (TopicPartitions(T, (PartitionId(0),)),)
    assert groups.ask(FetchOffsets(G, offsets)).topics[0].offsets[0].offset == -1
    assert groups.ask(DeleteOffsets(G, offsets)).error is ErrorCode.GROUP_ID_NOT_FOUND
    join = Join(G, MemberId(""), None, "c", "h", "consumer", (ClassicAssignor("range", b""),), 10_000, 10_000)
    assert groups.ask(join).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.ask(DeleteGroups((G,))) == (ErrorCode.NON_EMPTY_GROUP,)


# --- state of share partitions ---------------------------------------------------------------------------------


def test_state_is_asked_for_once_and_again_when_nothing_comes_of_it() -> None:
    groups = Groups(initializes=False)
    assert groups.beat(A, 0, T).initialize is not None
    assert groups.beat(A, 2).initialize is None, "somebody is at it"
    for _ in range(3):
        groups.pass_time(7_500)
        assert groups.beat(A, 2).initialize is None
    groups.pass_time(7_500)
    assert groups.beat(A, 2).initialize is not None


def test_members_come_back_soon_while_state_is_initialized() -> None:
    groups = Groups(initializes=False)
    beats = [groups.beat(A, 0, T), groups.beat(B, 0, T), groups.beat(A, 2)]
    assert [beat.heartbeat_interval_ms for beat in beats] == [250, 250, 250]
    assert beats[0].initialize is not None
    groups.ask(ShareStateInitialized(G, beats[0].initialize.partitions))
    assert groups.beat(B, 3).heartbeat_interval_ms == 1_000


def test_a_failure_has_it_tried_at_the_next_heartbeat() -> None:
    groups = Groups(initializes=False)
    beat = groups.beat(A, 0, T)
    assert beat.initialize is not None
    groups.ask(ShareStateFailed(G, beat.initialize.partitions))
    assert groups.group.initializing == {}
    assert groups.beat(A, 2).initialize == beat.initialize


def test_a_successor_tries_at_once_what_was_under_way() -> None:
    groups = Groups(initializes=False)
    groups.beat(A, 0, T)
    log = groups.log
    groups.machine = groups.new_machine()
    for position, record in enumerate(log):
        groups.machine.replay(record, position, -1)
    groups.carry_out(groups.machine.loaded(groups.now_ms))
    assert groups.beat(A, 2).initialize is not None
    assert ("share-session", G, A) in groups.timers


def test_offsets_of_a_group_without_members_can_be_altered() -> None:
    groups = Groups()
    groups.join(A)
    groups.beat(A, -1)
    epoch = groups.group.epoch
    wishes = (ShareOffset(T, PartitionId(1), 40), ShareOffset(T, PartitionId(9), 1), ShareOffset(U, PartitionId(0), 1))
    altered: ShareOffsetsAltered = groups.ask(AlterShareOffsets(G, wishes))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (altered.error, altered.errors) == (ErrorCode.NONE, (ErrorCode.NONE, unknown, unknown))
    assert altered.initialize is not None
    assert altered.initialize.state_epoch == epoch
    assert altered.initialize.start_offsets == {T_ID: {1: 40}}
    assert altered.initialize.anew == {T_ID}
    assert groups.group.initializing == {T_ID: frozenset({1})}
    groups.ask(ShareStateInitialized(G, altered.initialize.partitions))
    assert (groups.group.initializing, groups.group.initialized) == ({}, {T_ID: frozenset({0, 1, 2})})


def test_nothing_to_alter() -> None:
    groups = Groups()
    groups.join(A)
    groups.beat(A, -1)
    written = len(groups.log)
    altered = groups.ask(AlterShareOffsets(G, (ShareOffset(U, PartitionId(0), 1),)))
    assert (altered.errors, altered.initialize) == ((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,), None)
    assert len(groups.log) == written


@pytest.mark.parametrize(
    "event", [AlterShareOffsets(G, (ShareOffset(T, PartitionId(1), 40),)), DeleteShareOffsets(G, (T,))]
)
def test_only_groups_without_members_give_up_their_offsets(event: Any) -> None:
    groups = Groups()
    assert groups.ask(replace(event)).error is ErrorCode.GROUP_ID_NOT_FOUND
    groups.join(A)
    assert groups.ask(replace(event)).error is ErrorCode.NON_EMPTY_GROUP
    commit = (OffsetToCommit(T, PartitionId(0), 7),)
    groups.ask(CommitOffsets(GroupId("other"), MemberId(""), None, -1, commit))
    refused = groups.ask(replace(event, group_id=GroupId("other")))
    assert (refused.error, refused.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group other is not a share group.")


def test_offsets_are_deleted_in_two_steps() -> None:
    groups = Groups(topic(T, T_ID, 2), topic(U, U_ID, 1))
    groups.join(A)
    groups.beat(A, -1)
    deletion: ShareDeletion = groups.ask(DeleteShareOffsets(G, (T, U, TopicName("none"))))
    assert deletion.partitions == {T_ID: frozenset({0, 1})}
    assert deletion.refused == {
        U: "There is no offset information to delete.",
        "none": "This server does not host this topic-partition.",
    }
    state = groups.group.state_partitions
    assert state == ShareStatePartitions(G, {}, {}, frozenset({T_ID}), {T_ID: T})
    again = groups.ask(DeleteShareOffsets(G, (T,)))
    assert again.partitions == deletion.partitions, "the first time may have come to nothing"
    groups.ask(ShareOffsetsDeleted(G, frozenset({T_ID})))
    assert groups.group.state_partitions == ShareStatePartitions(G)
    assert groups.join(A) > 0
    assert groups.group.initialized == {T_ID: frozenset({0, 1})}


def test_what_was_to_be_deleted_starts_anew_for_those_who_come_before_it_was() -> None:
    groups = Groups(topic(T, T_ID, 2), topic(U, U_ID, 1))
    groups.join(A, T)
    groups.beat(A, -1)
    groups.ask(DeleteShareOffsets(G, (T,)))
    beat = groups.beat(A, 0, T, U)
    assert beat.initialize is not None
    assert beat.initialize.partitions == {T_ID: frozenset({0, 1}), U_ID: frozenset({0})}
    assert beat.initialize.anew == {T_ID}


def test_a_group_is_deleted_once_its_state_is() -> None:
    groups = Groups()
    assert groups.ask(DeleteShareGroup(G)) == ShareDeletion(), "left to those who delete groups of any kind"
    groups.join(A)
    assert groups.ask(DeleteShareGroup(G)).error is ErrorCode.NON_EMPTY_GROUP
    groups.beat(A, -1)
    assert groups.ask(DeleteShareGroup(G)).partitions == {T_ID: frozenset({0, 1, 2})}
    assert groups.ask(DeleteShareGroup(G)).partitions == {T_ID: frozenset({0, 1, 2})}, "it failed, perhaps"
    assert groups.ask(DeleteGroups((G,))) == (ErrorCode.NONE,)
    assert G not in groups.machine.groups
    successor = groups.new_machine()
    for position, record in enumerate(groups.log):
        successor.replay(record, position, -1)
    assert successor.groups == {}


def test_deleted_topics_are_forgotten() -> None:
    groups = Groups(topic(T, T_ID, 2), topic(U, U_ID, 1))
    epoch = groups.join(A, T, U)
    groups.topics = FixedTopics([topic(U, U_ID, 1)], version=1)
    groups.ask(ForgetShareTopics(frozenset({T_ID})))
    assert groups.ask(FindSharePartitions(G)) == {U_ID: frozenset({0})}
    assert groups.beat(A, epoch).assignment == {U_ID: frozenset({0})}
    written = len(groups.log)
    groups.ask(ForgetShareTopics(frozenset({T_ID})))
    assert len(groups.log) == written


def test_topics_that_were_deleted_while_nobody_was_there_are_forgotten() -> None:
    groups = Groups(topic(T, T_ID, 2), topic(U, U_ID, 1))
    groups.join(A, T, U)
    groups.topics = FixedTopics([topic(U, U_ID, 1)], version=1)
    log = groups.log
    groups.machine = groups.new_machine()
    for position, record in enumerate(log):
        groups.machine.replay(record, position, -1)
    groups.carry_out(groups.machine.loaded(groups.now_ms))
    assert groups.ask(FindSharePartitions(G)) == {U_ID: frozenset({0})}


def test_what_was_deleted_meanwhile_is_not_initialized() -> None:
    groups = Groups(initializes=False)
    beat = groups.beat(A, 0, T)
    assert beat.initialize is not None
    groups.ask(ForgetShareTopics(frozenset({T_ID})))
    groups.ask(ShareStateInitialized(G, beat.initialize.partitions))
    assert groups.ask(FindSharePartitions(G)) == {}
    groups.ask(ShareStateInitialized(GroupId("gone"), beat.initialize.partitions))
    assert groups.ask(FindSharePartitions(GroupId("gone"))) == {}


# --- describing ------------------------------------------------------------------------------------------------


def test_a_group_is_described() -> None:
    groups = Groups()
    epoch = groups.join(A)
    (described,) = groups.ask(DescribeShareGroups((G,)))
    assert (described.error, described.state, described.assignor) == (ErrorCode.NONE, "Stable", "simple")
    assert (described.group_epoch, described.assignment_epoch) == (epoch, epoch)
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.client_id, member.topic_names) == (A, epoch, "c", (T,))
    assert member.assignment == ((T_ID, T, (0, 1, 2)),)
    groups.beat(A, -1)
    (described,) = groups.ask(DescribeShareGroups((G,)))
    assert (described.state, described.members) == ("Empty", ())
    (listing,) = groups.ask(ListGroups())
    assert (listing.group_type, listing.protocol_type, listing.state) == ("share", "share", "Empty")


def test_groups_that_cannot_be_described() -> None:
    groups = Groups()
    groups.ask(CommitOffsets(G, MemberId(""), None, -1, (OffsetToCommit(T, PartitionId(0), 7),)))
    other, none = groups.ask(DescribeShareGroups((G, GroupId("none"))))
    assert (other.error, other.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")
    assert (none.error, none.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


def test_the_history_says_why_and_what_moved() -> None:
    groups = Groups()
    groups.join(A)
    first, second = groups.ask(DescribeHistory(G)).rebalances
    assert (first.protocol, first.assignor, first.members) == ("share", "simple", 1)
    assert first.reasons == ("member a joined", "subscriptions or topics changed")
    assert (first.moved_partitions, first.moves) == (0, ())
    assert second.reasons == ("partitions have been initialized or deleted",)
    assert (second.moved_partitions, second.moves) == (3, (Move(T, (0, 1, 2), None, A),))


def test_epochs_grow_with_what_was_written() -> None:
    groups = Groups()
    groups.join(A)
    epochs = [record.epoch for record in groups.log if isinstance(record, ShareGroupEpoch)]
    assert epochs == [2, 3]
    assignments = [record for record in groups.log if isinstance(record, ShareAssignment)]
    assert [(record.epoch, record.previous_epoch) for record in assignments] == [(2, 0), (3, 0)]
