"""What goes on between the group coordinator and the share coordinator, and what when one of them cannot."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from tests.unit.coordinators.test_share_coordinator import MemoryLog

from ottla.clock import SystemClock
from ottla.cluster.image import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    MetadataImage,
    PartitionImage,
    TopicImage,
    empty_image,
)
from ottla.config.group_settings import GroupSettings
from ottla.coordinators import coordinator, share_groups
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.image_topics import ImageTopics
from ottla.coordinators.share_coordinator import ShareCoordinator, coordinator_key
from ottla.coordinators.share_groups import ShareGroupCoordinator
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import ErrorCode, NotCoordinator
from ottla.groups.share.events import ShareBeat, ShareHeartbeat, ShareOffset
from ottla.ids import BrokerId, GroupId, LeaderEpoch, MemberId, PartitionId, TopicId, TopicName
from ottla.share.state_events import DeleteState, StateSummary

G, M = GroupId("g"), MemberId("m")
T = TopicName("t")
T_ID = TopicId(UUID(int=1))
PARTITIONS = 4


def image(partitions: int) -> MetadataImage:
    me = BrokerId(1)
    parts = tuple(
        PartitionImage(PartitionId(number), me, LeaderEpoch(0), (me,), (me,), 0) for number in range(partitions)
    )
    topic = TopicImage(T, T_ID, parts)
    return empty_image("c")._replace(topics={T: topic}, topics_by_id={T_ID: topic})


async def create() -> None:
    """Topics are there."""


class Broker:
    """Both coordinators of a broker, on logs in memory."""

    def __init__(self) -> None:
        self.image = image(2)
        self.groups = GroupCoordinator(
            CoordinatorTopic(GROUP_METADATA_TOPIC, MemoryLog(), create, PARTITIONS),
            SystemClock(),
            topics=ImageTopics(self.image, 0),
            settings=lambda group_id: GroupSettings(share_assignment_interval_ms=0),
        )
        self.state = ShareCoordinator(
            CoordinatorTopic(SHARE_GROUP_STATE_TOPIC, MemoryLog(), create, PARTITIONS),
            SystemClock(),
            lambda topic, partition: topic in self.image.topics_by_id,
            lambda partition, offset: None,
        )
        self.share_groups = ShareGroupCoordinator(self.groups, self.state, lambda: self.image)

    async def start(self) -> None:
        for number in range(PARTITIONS):
            for part in (self.groups, self.state):
                part.on_leadership(PartitionId(number), LeaderEpoch(0))
                await part.until_active(PartitionId(number))

    async def stop(self) -> None:
        for part in (self.share_groups, self.state, self.groups):
            await part.stop()

    def lose(self, partition: int) -> None:
        """Another broker keeps the state of this partition of `t` now."""
        self.state.on_resign(self.state.partition_for(coordinator_key(G, T_ID, partition)))

    def take(self, partition: int) -> None:
        self.state.on_leadership(self.state.partition_for(coordinator_key(G, T_ID, partition)), LeaderEpoch(1))

    async def beat(self, epoch: int, *topics: TopicName) -> ShareBeat:
        return await self.share_groups.heartbeat(
            ShareHeartbeat(G, M, epoch, None, "c", "/h", frozenset(topics) or None)
        )


def run(test: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        broker = Broker()
        await broker.start()
        try:
            await test(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def starts(summaries: list[share_groups.TopicOffsets]) -> dict[str, dict[int, int]]:
    return {each.topic: {index: summary.start_offset for index, summary in each.partitions} for each in summaries}


def test_partitions_of_the_two_do_not_lie_together() -> None:
    """What the tests below rely on: one of them can be lost without the other."""

    async def test(broker: Broker) -> None:
        places = {broker.state.partition_for(coordinator_key(G, T_ID, number)) for number in range(2)}
        assert len(places) == 2

    run(test)


def test_the_first_answer_assigns_what_has_been_initialized_for_it() -> None:
    async def test(broker: Broker) -> None:
        beat = await broker.beat(0, T)
        assert (beat.error, beat.member_epoch, beat.assignment) == (ErrorCode.NONE, 3, {T_ID: frozenset({0, 1})})
        assert starts(await broker.share_groups.describe_offsets(G, None)) == {T: {0: -1, 1: -1}}

    run(test)


def test_what_cannot_be_initialized_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "LOAD_TIMEOUT_S", 0.01)

    async def test(broker: Broker) -> None:
        broker.lose(1)
        beat = await broker.beat(0, T)
        assert beat.assignment == {T_ID: frozenset({0})}
        broker.take(1)
        beat = await broker.beat(beat.member_epoch)
        assert beat.assignment == {T_ID: frozenset({0, 1})}

    run(test)


def test_a_heartbeat_waits_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "INITIALIZE_TIMEOUT_S", 0.01)

    async def test(broker: Broker) -> None:
        let_go = asyncio.Event()
        initialize = broker.state.initialize

        async def slowly(*arguments: Any, **options: Any) -> Any:
            await let_go.wait()
            return await initialize(*arguments, **options)

        monkeypatch.setattr(broker.state, "initialize", slowly)
        beat = await broker.beat(0, T)
        assert (beat.member_epoch, beat.assignment) == (2, {})
        let_go.set()
        while not starts(await broker.share_groups.describe_offsets(G, None)):
            await asyncio.sleep(0)
        assert (await broker.beat(2)).assignment == {T_ID: frozenset({0, 1})}

    run(test)


def test_offsets_that_cannot_be_altered_say_so_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "LOAD_TIMEOUT_S", 0.01)

    async def test(broker: Broker) -> None:
        await broker.beat(0, T)
        await broker.beat(-1)
        broker.lose(1)
        wishes = [ShareOffset(T, PartitionId(number), 7) for number in range(3)]
        altered = await broker.share_groups.alter_offsets(G, wishes)
        not_there = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert altered.errors == (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, not_there)
        told = await broker.share_groups.describe_offsets(G, None)
        assert starts(told) == {T: {0: 7, 1: -1}}, "what nobody can tell starts at -1"

    run(test)


def test_offsets_that_cannot_be_deleted_are_deleted_the_next_time() -> None:
    async def test(broker: Broker) -> None:
        await broker.beat(0, T)
        await broker.beat(-1)
        broker.lose(1)
        (topic,) = (await broker.share_groups.delete_offsets(G, [T])).topics
        assert (topic.topic_id, topic.error) == (T_ID, ErrorCode.NOT_COORDINATOR)
        broker.take(1)
        (topic,) = (await broker.share_groups.delete_offsets(G, [T])).topics
        assert (topic.topic_id, topic.error) == (T_ID, ErrorCode.NONE)

    run(test)


def test_a_group_stays_until_its_state_is_deleted() -> None:
    async def test(broker: Broker) -> None:
        await broker.beat(0, T)
        await broker.beat(-1)
        broker.lose(1)
        assert await broker.share_groups.delete_group(G) is ErrorCode.NOT_COORDINATOR
        assert (await broker.share_groups.describe(G)).error is ErrorCode.NONE
        broker.take(1)
        assert await broker.share_groups.delete_group(G) is ErrorCode.NONE
        assert (await broker.share_groups.describe(G)).error is ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


def test_who_joins_while_a_group_is_being_deleted_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(broker: Broker) -> None:
        await broker.beat(0, T)
        await broker.beat(-1)
        let_go = asyncio.Event()
        change = broker.state.change

        async def slowly(event: Any) -> Any:
            if isinstance(event, DeleteState):
                await let_go.wait()
            return await change(event)

        monkeypatch.setattr(broker.state, "change", slowly)
        deletion = asyncio.ensure_future(broker.share_groups.delete_group(G))
        await asyncio.sleep(0)
        joining = asyncio.ensure_future(broker.beat(0, T))
        while (await broker.share_groups.describe(G)).state == "Empty":
            await asyncio.sleep(0)
        for _ in range(100):  # enough for its state to be initialized, if that did not wait for its turn
            await asyncio.sleep(0)
        let_go.set()
        assert await deletion is ErrorCode.NON_EMPTY_GROUP
        assert (await joining).assignment == {T_ID: frozenset({0, 1})}
        for number in range(2):
            assert (await broker.state.read(G, T_ID, PartitionId(number), 0)).start_offset == -1
        assert broker.share_groups._group_locks == {}

    run(test)


def test_topics_that_nobody_knows_start_nowhere() -> None:
    async def test(broker: Broker) -> None:
        asked = {T: [PartitionId(0)], TopicName("none"): [PartitionId(3)]}
        told = await broker.share_groups.describe_offsets(G, asked)
        assert starts(told) == {T: {0: -1}, "none": {3: -1}}
        assert [summary for each in told for _, summary in each.partitions] == [StateSummary()] * 2

    run(test)


def test_deleted_topics_are_forgotten_by_groups() -> None:
    async def test(broker: Broker) -> None:
        await broker.beat(0, T)
        broker.share_groups.on_metadata(broker.image, empty_image("c"))
        while starts(await broker.share_groups.describe_offsets(G, None)):
            await asyncio.sleep(0)

    run(test)


def test_nobody_answers_for_groups_that_are_elsewhere() -> None:
    async def test(broker: Broker) -> None:
        broker.groups.on_resign(broker.groups.partition_for(G))
        calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: broker.beat(0, T),
            lambda: broker.share_groups.describe(G),
            lambda: broker.share_groups.delete_group(G),
            lambda: broker.share_groups.describe_offsets(G, None),
        ]
        for call in calls:
            with pytest.raises(NotCoordinator) as refused:
                await call()
            assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(test)
