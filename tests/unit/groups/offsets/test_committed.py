"""Committed offsets: who may commit, what is read back, what expires, what is deleted."""

import time
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.support.state_machines import Driver

from ottla.coordination.state_machine import Append, Reply, SetTimer, TimerFired
from ottla.errors import ErrorCode
from ottla.groups.classic.records import GroupDeleted
from ottla.groups.classic.states import GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    Assignor,
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    FetchedOffset,
    FetchedTopic,
    FetchOffsets,
    ForgetTopics,
    GroupListing,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    ListGroups,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    OffsetToCommit,
    Sync,
    TopicPartitions,
)
from ottla.groups.offsets import requests
from ottla.groups.offsets.records import OffsetCommitted, OffsetDeleted
from ottla.groups.state_machine import GroupMachine
from ottla.ids import ZERO_TOPIC_ID, GroupId, MemberId, PartitionId, ProducerIdAndEpoch, TopicId, TopicName

G = GroupId("g")
T, U = TopicName("t"), TopicName("u")
HOUR_MS = 3_600_000
SUBSCRIBED_TO_T = b"\0\3" + b"\0\0\0\1" + b"\0\1t" + b"whatever later versions add"


def driver(**settings: Any) -> Driver:
    d = Driver(GroupMachine(GroupConfig(offsets_retention_minutes=60, **settings), lambda: "1"))
    d.carry_out(d.machine.loaded(d.now_ms))
    return d


def wish(partition: int, offset: int, topic: TopicName = T, **changes: Any) -> OffsetToCommit:
    return OffsetToCommit(topic, PartitionId(partition), offset, **changes)


def commit(*offsets: OffsetToCommit, member: str = "", generation: int = -1, **changes: Any) -> Any:
    return CommitOffsets(G, MemberId(member), None, generation, offsets, **changes)


def partitions(topic: TopicName, *indexes: int, topic_id: TopicId = ZERO_TOPIC_ID) -> TopicPartitions:
    return TopicPartitions(topic, tuple(PartitionId(index) for index in indexes), topic_id)


def fetched(d: Driver, *topics: TopicPartitions, stable: bool = False) -> dict[tuple[str, int], int]:
    reply = d.ask(FetchOffsets(G, topics or None, stable))
    return {(t.topic, o.partition): o.error or o.offset for t in reply.topics for o in t.offsets}


def joined(d: Driver, protocol_type: str = "consumer", metadata: bytes = SUBSCRIBED_TO_T) -> str:
    """One member, stable at generation 1."""
    protocols = (Assignor("range", metadata),)
    d.send(Join(G, MemberId(""), None, "c", "h", protocol_type, protocols, 1_000_000, 1_000_000, "", False), "j")
    d.pass_time(3_000)
    member: str = d.reply("j").member_id
    d.send(Sync(G, MemberId(member), None, 1), "s")
    return member


def test_a_commit_is_written_and_read_back() -> None:
    d = driver()
    effects = d.send(commit(wish(0, 7, leader_epoch=3, metadata="m"), wish(1, 8)), "a")
    assert effects == [
        Append(
            (
                OffsetCommitted(G, T, PartitionId(0), 7, 3, "m", d.now_ms),
                OffsetCommitted(G, T, PartitionId(1), 8, -1, "", d.now_ms),
            )
        ),
        Reply(d.requests["a"], OffsetsCommitted((ErrorCode.NONE, ErrorCode.NONE))),
    ]
    d.send(FetchOffsets(G, (partitions(T, 1, 0, 2), partitions(U, 0))), "f")
    assert d.reply("f") == OffsetsFetched(
        (
            FetchedTopic(
                T,
                (
                    FetchedOffset(PartitionId(1), 8),
                    FetchedOffset(PartitionId(0), 7, 3, "m"),
                    FetchedOffset(PartitionId(2)),
                ),
            ),
            FetchedTopic(U, (FetchedOffset(PartitionId(0)),)),
        )
    )


def test_all_topics_can_be_asked_for() -> None:
    d = driver()
    d.send(commit(wish(0, 1), wish(3, 2), wish(0, 3, U)), "a")
    d.send(commit(wish(3, 4)), "b")
    assert fetched(d) == {("t", 0): 1, ("t", 3): 4, ("u", 0): 3}


def test_a_group_nobody_knows_has_no_offsets() -> None:
    d = driver()
    assert fetched(d) == {}
    assert fetched(d, partitions(T, 0)) == {("t", 0): -1}


def test_too_much_metadata_fails_one_partition_only() -> None:
    d = driver(offset_metadata_max_bytes=3)
    d.send(commit(wish(0, 1, metadata="1234"), wish(1, 2, metadata="123")), "a")
    assert d.reply("a").errors == (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert fetched(d) == {("t", 1): 2}


def test_an_offset_in_a_topic_that_was_replaced_does_not_count() -> None:
    d = driver()
    old, new = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    d.send(commit(wish(0, 5, topic_id=old), wish(1, 6)), "a")
    assert fetched(d, partitions(T, 0, 1, topic_id=old)) == {("t", 0): 5, ("t", 1): 6}
    assert fetched(d, partitions(T, 0, 1, topic_id=new)) == {("t", 0): -1, ("t", 1): 6}


# --- who may commit --------------------------------------------------------------------------------------------


def test_a_member_commits_in_its_generation() -> None:
    d = driver()
    member = joined(d)
    d.send(commit(wish(0, 1), member=member, generation=1), "ok")
    d.send(commit(wish(0, 2), member=member, generation=0), "old")
    d.send(commit(wish(0, 3), member="x", generation=1), "stranger")
    d.send(commit(wish(0, 4)), "outside")
    errors = [d.reply(token).errors[0] for token in ("ok", "old", "stranger", "outside")]
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert fetched(d) == {("t", 0): 1}


def test_a_commit_keeps_the_session_alive() -> None:
    d = driver()
    member = joined(d)
    effects = d.send(commit(wish(0, 1), member=member, generation=1), "ok")
    assert effects[0] == SetTimer(("session", G, member), 1_000_000)


def test_nobody_commits_between_join_and_sync() -> None:
    d = driver()
    d.send(Join(G, MemberId(""), None, "c", "h", "consumer", (Assignor("r", b""),), 9_000, 9_000, "", False), "j")
    d.send(commit(wish(0, 1), member="c-1", generation=0), "during-join")
    d.pass_time(3_000)
    d.send(commit(wish(0, 2), member="c-1", generation=1), "before-sync")
    assert d.reply("during-join").errors == (ErrorCode.NONE,)  # while joining, the last generation's commits count
    assert d.reply("before-sync").errors == (ErrorCode.REBALANCE_IN_PROGRESS,)


@pytest.mark.parametrize(
    ("knows", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_generation_of_a_group_nobody_knows(knows: bool, error: ErrorCode) -> None:
    d = driver()
    d.send(commit(wish(0, 1), member="m", generation=4, knows_member_epochs=knows), "a")
    assert d.reply("a").errors == (error,)


# --- transactions ----------------------------------------------------------------------------------------------


def pending(d: Driver, offset: int, position: int, producer_id: int = 9) -> None:
    record = OffsetCommitted(G, T, PartitionId(0), offset, -1, "", d.now_ms)
    d.machine.replay(record, position, producer_id)


def test_an_offset_in_a_transaction_counts_when_it_commits() -> None:
    d = driver()
    pending(d, 5, 1)
    assert fetched(d, partitions(T, 0)) == {("t", 0): -1}
    assert fetched(d, partitions(T, 0), stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    d.machine.end_transaction(9, committed=True)
    assert fetched(d, partitions(T, 0), stable=True) == {("t", 0): 5}


def test_an_aborted_transaction_leaves_nothing() -> None:
    d = driver()
    pending(d, 5, 1)
    d.machine.end_transaction(9, committed=False)
    assert fetched(d, partitions(T, 0), stable=True) == {("t", 0): -1}


def test_a_later_commit_outside_wins_over_a_transaction() -> None:
    d = driver()
    pending(d, 5, 1)
    d.machine.replay(OffsetCommitted(G, T, PartitionId(0), 8, -1, "", 0), 2, -1)
    d.machine.end_transaction(9, committed=True)
    assert fetched(d) == {("t", 0): 8}


def test_a_producer_commits_for_a_group() -> None:
    d = driver()
    producer = ProducerIdAndEpoch(9, 3)
    effects = d.send(commit(wish(0, 5), wish(1, 6, metadata="x" * 5_000), producer=producer), "c")
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert append.producer == producer
    assert d.reply("c") == OffsetsCommitted((ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE))
    assert fetched(d, partitions(T, 0), stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    d.machine.end_transaction(9, committed=True)
    assert fetched(d, partitions(T, 0), stable=True) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("", -1, ErrorCode.NONE),  # a producer that names no member
        ("member", 1, ErrorCode.NONE),
        ("member", 0, ErrorCode.ILLEGAL_GENERATION),
        ("member", 2, ErrorCode.ILLEGAL_GENERATION),
        ("another", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_producer_is_fenced_by_what_it_says_of_its_member(member: str, generation: int, error: ErrorCode) -> None:
    """KIP-447: the commits of the partitions' new owner must not be overwritten."""
    d = driver()
    name = joined(d)
    again = (Assignor("range", SUBSCRIBED_TO_T + b"!"),)
    d.send(Join(G, MemberId(name), None, "c", "h", "consumer", again, 1_000_000, 1_000_000, "", False), "again")
    assert d.machine.groups[G].state is GroupState.COMPLETING_REBALANCE  # which is none of a producer's business
    generation += 1 if generation >= 0 else 0
    sender = name if member == "member" else member
    d.send(commit(wish(0, 5), member=sender, generation=generation, producer=ProducerIdAndEpoch(9, 0)), "c")
    assert d.reply("c") == OffsetsCommitted((error,))
    d.machine.end_transaction(9, committed=True)
    assert fetched(d) == ({} if error else {("t", 0): 5})


def test_a_producer_for_a_generation_of_no_group_is_refused() -> None:
    d = driver()
    d.send(commit(wish(0, 5), member="m", generation=1, producer=ProducerIdAndEpoch(9, 0)), "c")
    assert d.reply("c") == OffsetsCommitted((ErrorCode.ILLEGAL_GENERATION,))
    assert d.log == []


# --- expiry ----------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_go_one_retention_after_their_commit() -> None:
    d = driver()
    d.send(commit(wish(0, 1)), "a")
    d.pass_time(HOUR_MS // 2)
    d.send(commit(wish(1, 2)), "b")
    d.pass_time(HOUR_MS // 2 + 600_000)
    assert fetched(d) == {("t", 1): 2}
    d.pass_time(HOUR_MS)
    assert d.log[-2:] == [OffsetDeleted(G, T, PartitionId(1)), GroupDeleted(G)]
    d.send(ListGroups(), "list")
    assert d.reply("list") == ()


def test_a_commit_can_name_its_own_retention() -> None:
    d = driver()
    d.send(commit(wish(0, 1), retention_ms=24 * HOUR_MS), "a")
    d.send(commit(wish(1, 1), retention_ms=1), "b")
    assert d.log[0].expire_timestamp_ms == d.now_ms + 24 * HOUR_MS
    d.pass_time(2 * HOUR_MS)
    assert fetched(d) == {("t", 0): 1}


def test_a_group_with_members_keeps_what_it_reads() -> None:
    d = driver()
    member = joined(d)
    d.send(commit(wish(0, 1), wish(0, 2, U), member=member, generation=1), "a")
    for _ in range(20):
        d.pass_time(600_000)
        d.send(Heartbeat(G, MemberId(member), None, 1), ("h", d.now_ms))
    assert fetched(d) == {("t", 0): 1}


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", b""), ("consumer", b"\0\0\0\0\0\2\0\1t\0")])
def test_a_group_only_its_members_understand_keeps_all(protocol_type: str, metadata: bytes) -> None:
    d = driver()
    member = joined(d, protocol_type, metadata)
    d.send(commit(wish(0, 1), member=member, generation=1), "a")
    for _ in range(20):
        d.pass_time(600_000)
        d.send(Heartbeat(G, MemberId(member), None, 1), ("h", d.now_ms))
    assert fetched(d) == {("t", 0): 1}


def test_the_time_counts_from_when_the_group_became_empty() -> None:
    d = driver()
    member = joined(d)
    d.send(commit(wish(0, 1), member=member, generation=1), "a")
    for _ in range(12):
        d.pass_time(600_000)
        d.send(Heartbeat(G, MemberId(member), None, 1), ("h", d.now_ms))
    d.send(Leave(G, (LeavingMember(MemberId(member)),)), "bye")
    d.pass_time(HOUR_MS - 600_001)
    assert fetched(d) == {("t", 0): 1}
    d.pass_time(1_200_001)
    assert fetched(d) == {}
    assert isinstance(d.log[-1], GroupDeleted)


def test_an_offset_in_a_transaction_does_not_expire() -> None:
    d = driver()
    d.send(commit(wish(0, 1)), "a")
    pending(d, 5, 50)
    d.pass_time(3 * HOUR_MS)
    assert fetched(d) == {("t", 0): 1}
    d.machine.end_transaction(9, committed=False)
    d.pass_time(HOUR_MS)
    assert fetched(d) == {}


# --- deletion --------------------------------------------------------------------------------------------------


def test_offsets_are_deleted_unless_the_group_reads_the_topic() -> None:
    d = driver()
    member = joined(d)
    d.send(commit(wish(0, 1), wish(0, 2, U), member=member, generation=1), "a")
    d.send(DeleteOffsets(G, (partitions(T, 0), partitions(U, 0, 1))), "d")
    expected = OffsetsDeleted(ErrorCode.NONE, ((T, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), (U, ErrorCode.NONE)))
    assert d.reply("d") == expected
    assert fetched(d) == {("t", 0): 1}


def test_offsets_of_a_group_with_its_own_protocol_are_not_deleted_under_it() -> None:
    d = driver()
    joined(d, "connect", b"")
    d.send(DeleteOffsets(G, (partitions(T, 0),)), "d")
    assert d.reply("d") == OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)


def test_there_is_nothing_to_delete_in_a_group_nobody_knows() -> None:
    d = driver()
    d.send(DeleteOffsets(G, (partitions(T, 0),)), "d")
    assert d.reply("d") == OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)


def test_offsets_go_with_their_topic() -> None:
    d = driver()
    d.send(commit(wish(0, 1), wish(1, 2), wish(0, 3, U)), "a")
    d.send(ForgetTopics({T: TopicId(UUID(int=1))}), "f")
    assert fetched(d) == {("u", 0): 3}
    assert d.reply("f") == ()
    assert d.send(ForgetTopics({T: TopicId(UUID(int=1))}), "g") == [Reply(d.requests["g"], ())]


def test_offsets_of_a_later_topic_of_that_name_stay() -> None:
    d = driver()
    gone, new = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    d.send(commit(wish(0, 1, topic_id=gone), wish(1, 2, topic_id=new)), "a")
    d.send(ForgetTopics({T: gone}), "f")
    assert fetched(d) == {("t", 1): 2}


def test_offsets_of_many_groups_go_with_their_topics_in_short_turns() -> None:
    d, groups, topics = driver(), 3_000, {TopicName(f"t{at}"): TopicId(UUID(int=1 + at)) for at in range(1_000)}
    for at in range(groups):
        wishes = (wish(0, 1, TopicName(f"t{at % 1_000}")), wish(0, 1, U))
        d.send(replace(commit(*wishes), group_id=GroupId(f"g{at}")), at)
    left: tuple[GroupId, ...] | None = None
    turns: list[float] = []
    while left is None or left:
        begun = time.process_time()
        effects = d.send(ForgetTopics(topics, left), ("f", len(turns)))
        turns.append(time.process_time() - begun)
        assert sum(len(effect.records) for effect in effects if isinstance(effect, Append)) <= 500
        left = d.reply(("f", len(turns) - 1))
    assert max(turns) < 0.05
    assert all(set(d.machine.offsets.of_group(GroupId(f"g{at}"))) == {(U, 0)} for at in range(groups))


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    d = driver()
    member = joined(d)
    d.send(commit(wish(0, 1), member=member, generation=1), "a")
    d.send(DeleteGroups((G, GroupId("nobody"))), "full")
    assert d.reply("full") == (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
    d.send(Leave(G, (LeavingMember(MemberId(member)),)), "bye")
    pending(d, 5, 50)
    effects = d.send(DeleteGroups((G,)), "empty")
    assert effects == [
        Append((OffsetDeleted(G, T, PartitionId(0)), GroupDeleted(G))),
        Reply(d.requests["empty"], (ErrorCode.NONE,)),
    ]
    d.machine.end_transaction(9, committed=True)
    assert fetched(d) == {}


def test_groups_are_listed_by_state() -> None:
    d = driver()
    joined(d)
    d.send(CommitOffsets(GroupId("simple"), MemberId(""), None, -1, (wish(0, 1),)), "a")
    d.send(ListGroups(), "all")
    d.send(ListGroups(frozenset({"stable"})), "stable")
    stable = GroupListing(G, "consumer", GroupState.STABLE)
    assert d.reply("all") == (stable, GroupListing(GroupId("simple"), "", GroupState.EMPTY))
    assert d.reply("stable") == (stable,)


@pytest.mark.parametrize(("looked_at", "deleted"), [(3, 500), (5_000, 2)])
def test_expiry_looks_at_some_groups_in_each_turn(
    looked_at: int, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of groups took hundreds of milliseconds, in which no other group got an answer."""
    monkeypatch.setattr(requests, "OFFSETS_IN_A_TURN", looked_at)
    monkeypatch.setattr(requests, "DELETIONS_IN_A_TURN", deleted)
    d = driver()
    groups = [GroupId(f"g{number}") for number in range(5)]
    for group in groups:
        d.send(CommitOffsets(group, MemberId(""), None, -1, (wish(0, 1), wish(1, 1), wish(2, 1))), group)
    d.now_ms += 2 * HOUR_MS
    sizes = []
    effects = d.send(TimerFired(("expire-offsets",)))
    while effects[-1] == SetTimer(("expire-offsets",), 0):
        sizes.append(sum(len(effect.records) for effect in effects if isinstance(effect, Append)))
        effects = d.send(TimerFired(("expire-offsets",)))
    assert effects[-1] == SetTimer(("expire-offsets",), 600_000)
    assert len(sizes) > 1
    assert max(sizes) <= 9, "the offsets of a few groups, and the groups"
    d.send(ListGroups(), "list")
    assert d.reply("list") == ()
    assert {record for record in d.log if isinstance(record, GroupDeleted)} == {GroupDeleted(group) for group in groups}


def test_expiry_is_looked_at_again_and_again() -> None:
    d = driver()
    assert d.send(TimerFired(("expire-offsets",))) == [SetTimer(("expire-offsets",), 600_000)]
