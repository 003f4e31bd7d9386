"""The coordinator's edge: which partition speaks for a group, and what is said when none can."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest

from ottla.clock import SystemClock
from ottla.cluster.image import GROUP_METADATA_TOPIC, PartitionImage, TopicImage, empty_image
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import ApiError, CoordinatorLoadInProgress, ErrorCode, NotCoordinator
from ottla.groups.classic.states import GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    Assignor,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Sync,
)
from ottla.groups.offsets import requests
from ottla.ids import BrokerId, GroupId, LeaderEpoch, MemberId, PartitionId, TopicId, TopicName
from ottla.records.batch import Buffer

NOBODY = MemberId("")


class MemoryLog:
    """All partitions in memory, offsets counted."""

    def __init__(self) -> None:
        self.batches: dict[PartitionId, list[bytes]] = {}

    async def append_committed(self, partition: PartitionId, batch: bytearray) -> object:
        self.batches.setdefault(partition, []).append(bytes(batch))
        return None

    async def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        for batch in list(self.batches.get(partition, ())):
            yield batch

    def producer(self, partition: PartitionId, producer_id: int) -> None:
        return None


async def no_topic() -> None:
    raise AssertionError("nobody asked for the topic")


def run(test: Callable[[GroupCoordinator], Awaitable[None]], *, load: bool = True) -> None:
    async def main() -> None:
        config = GroupConfig(group_initial_rebalance_delay_ms=0)
        topic = CoordinatorTopic(GROUP_METADATA_TOPIC, MemoryLog(), no_topic, 50)
        coordinator = GroupCoordinator(topic, SystemClock(), config=config, new_uuid=lambda: "1")
        try:
            for partition in range(50):
                coordinator.on_leadership(PartitionId(partition), LeaderEpoch(0))
            if load:
                while not all(coordinator.is_active(PartitionId(partition)) for partition in range(50)):
                    await asyncio.sleep(0)
            await test(coordinator)
        finally:
            await coordinator.stop()

    asyncio.run(main())


def commit(group: str, topic: str = "t", topic_id: int = 0) -> CommitOffsets:
    wish = OffsetToCommit(TopicName(topic), PartitionId(0), 7, topic_id=TopicId(UUID(int=topic_id)))
    return CommitOffsets(GroupId(group), NOBODY, None, -1, (wish,))


def test_a_member_lives_its_life() -> None:
    async def test(groups: GroupCoordinator) -> None:
        group = GroupId("g")
        protocols = (Assignor("range", b""),)
        first = await groups.join(Join(group, NOBODY, None, "c", "h", "consumer", protocols, 10_000, 10_000))
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        me = first.member_id
        joined = await groups.join(Join(group, me, None, "c", "h", "consumer", protocols, 10_000, 10_000))
        assert (joined.error, joined.leader) == (ErrorCode.NONE, me)
        synced = await groups.sync(Sync(group, me, None, 1, assignments={me: b"all"}))
        assert synced.assignment == b"all"
        beat = groups.heartbeat(Heartbeat(group, me, None, 1))
        assert beat.done(), "it costs no task"
        assert await beat is ErrorCode.NONE
        assert (await groups.describe_group(group)).members[0].assignment == b"all"
        assert await groups.delete_group(group) is ErrorCode.NON_EMPTY_GROUP
        left = await groups.leave(Leave(group, (LeavingMember(me),)))
        assert left.errors == (ErrorCode.NONE,)
        assert await groups.delete_group(group) is ErrorCode.NONE
        assert (await groups.describe_group(group)).state is GroupState.DEAD

    run(test)


def test_groups_of_all_partitions_are_listed() -> None:
    async def test(groups: GroupCoordinator) -> None:
        names = {f"group-{n}" for n in range(100)}
        for name in names:
            await groups.commit_offsets(commit(name))
        assert {listing.group_id for listing in await groups.list_groups()} == names
        assert len(await groups.list_groups(["EMPTY"])) == 100
        assert await groups.list_groups(["Stable"]) == []

    run(test)


def test_an_empty_group_id_is_for_offsets_only() -> None:
    async def test(groups: GroupCoordinator) -> None:
        empty = GroupId("")
        joined = await groups.join(Join(empty, NOBODY, None, "c", "h", "consumer", (), 10_000, 10_000))
        synced = await groups.sync(Sync(empty, NOBODY, None, 1))
        deleted = await groups.delete_offsets(DeleteOffsets(empty, ()))
        assert {joined.error, synced.error, deleted.error} == {ErrorCode.INVALID_GROUP_ID}
        with pytest.raises(ApiError):
            await groups.heartbeat(Heartbeat(empty, NOBODY, None, 1))
        with pytest.raises(ApiError):
            await groups.leave(Leave(empty, ()))
        assert (await groups.commit_offsets(commit(""))).errors == (ErrorCode.NONE,)

    run(test)


def test_while_loading_members_are_told_to_carry_on() -> None:
    async def test(groups: GroupCoordinator) -> None:
        assert await groups.heartbeat(Heartbeat(GroupId("g"), MemberId("m"), None, 1)) is ErrorCode.NONE
        with pytest.raises(CoordinatorLoadInProgress):
            await groups.commit_offsets(commit("g"))
        with pytest.raises(CoordinatorLoadInProgress):
            await groups.list_groups()

    run(test, load=False)


def test_groups_of_another_broker_are_not_answered_for() -> None:
    async def test(groups: GroupCoordinator) -> None:
        groups.on_resign(groups.partition_for("g"))
        heartbeat = Heartbeat(GroupId("g"), MemberId("m"), None, 1)
        with pytest.raises(NotCoordinator):
            await groups.heartbeat(heartbeat)
        with pytest.raises(NotCoordinator):
            await groups.commit_offsets(commit("g"))

    run(test)


@pytest.mark.parametrize("in_a_turn", [requests.DELETIONS_IN_A_TURN, 1])
def test_offsets_go_when_their_topics_are_deleted(in_a_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "DELETIONS_IN_A_TURN", in_a_turn)

    async def test(groups: GroupCoordinator) -> None:
        partition = PartitionImage(PartitionId(0), BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),), 0)
        topics = {
            TopicName(name): TopicImage(TopicName(name), TopicId(UUID(int=number)), (partition,))
            for number, name in enumerate(("gone", "also-gone", "kept"), 1)
        }
        by_id = {topic.topic_id: topic for topic in topics.values()}
        before = empty_image("c")._replace(topics=topics, topics_by_id=by_id)
        kept = topics[TopicName("kept")]
        after = before._replace(topics={kept.name: kept}, topics_by_id={kept.topic_id: kept})
        for name in topics:
            await groups.commit_offsets(commit("g", name))
        groups.on_metadata(before, after)
        for _ in range(500):
            fetched = await groups.fetch_offsets(FetchOffsets(GroupId("g"), None))
            if [topic.topic for topic in fetched.topics] == ["kept"]:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"still there: {fetched}")

    run(test)
