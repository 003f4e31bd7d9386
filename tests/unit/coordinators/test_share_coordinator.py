"""The share coordinator's edge: which partition keeps the state, and what goes on around its machine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from ottla.clock import SystemClock
from ottla.cluster.image import SHARE_GROUP_STATE_TOPIC, PartitionImage, TopicImage, empty_image
from ottla.coordinators.share_coordinator import ShareCoordinator, coordinator_key
from ottla.coordinators.topic import CoordinatorTopic
from ottla.errors import ApiError, ErrorCode, NotCoordinator
from ottla.ids import BrokerId, GroupId, LeaderEpoch, Offset, PartitionId, TopicId, TopicName
from ottla.records.batch import Buffer
from ottla.share.state import DeliveryState, SharePartitionKey, SharePartitionState, StateBatch
from ottla.share.state_events import DeleteState, ShareStateConfig, StateChanged, StateSummary

GROUP = GroupId("g")
TOPIC = TopicId(UUID("00000000-0000-4000-8000-000000000001"))
FIRST = PartitionId(0)
KEY = SharePartitionKey(GROUP, TOPIC, FIRST)
DONE = StateBatch(5, 7, DeliveryState.ACKNOWLEDGED, 1)
PARTITIONS = 5


class MemoryLog:
    """All partitions in memory."""

    def __init__(self) -> None:
        self.batches: dict[PartitionId, list[bytes]] = {}
        self.may_be_read = asyncio.Event()
        self.may_be_read.set()

    async def append_committed(self, partition: PartitionId, batches: bytearray) -> object:
        self.batches.setdefault(partition, []).append(bytes(batches))
        return None

    async def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        await self.may_be_read.wait()
        for batch in list(self.batches.get(partition, ())):
            yield batch

    def producer(self, partition: PartitionId, producer_id: int) -> None:
        return None


class Environment:
    """What a coordinator has around it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.topic_was_wanted = 0
        self.deleted: list[tuple[PartitionId, Offset]] = []

    async def create_topic(self) -> None:
        self.topic_was_wanted += 1

    def coordinator(self, *, updates: int = 500, leads: bool = True) -> ShareCoordinator:
        created = ShareCoordinator(
            CoordinatorTopic(SHARE_GROUP_STATE_TOPIC, self.log, self.create_topic, PARTITIONS),
            SystemClock(),
            lambda topic, partition: partition < 4,
            lambda partition, offset: self.deleted.append((partition, offset)),
            config=ShareStateConfig(snapshot_update_records_per_snapshot=updates),
        )
        if leads:
            lead(created)
        return created


def lead(coordinator: ShareCoordinator) -> None:
    for partition in range(PARTITIONS):
        coordinator.on_leadership(PartitionId(partition), LeaderEpoch(0))


def run(test: Callable[[Environment], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(Environment()))


def test_the_key_is_what_clients_ask_the_coordinator_of() -> None:
    assert coordinator_key(GROUP, TOPIC, 3) == "g:AAAAAAAAQACAAAAAAAAAAQ:3"


def test_a_successor_knows_what_was_written() -> None:
    async def test(environment: Environment) -> None:
        first = environment.coordinator()
        assert await first.initialize(KEY, 2, 5) == StateChanged(starts_over=True)
        assert environment.topic_was_wanted == 1
        assert await first.write(GROUP, TOPIC, FIRST, 2, 0, -1, [DONE], 0) is ErrorCode.NONE
        await first.stop()
        second = environment.coordinator()
        assert await second.read(GROUP, TOPIC, FIRST, 1) == SharePartitionState(2, 5, (DONE,))
        assert await second.write(GROUP, TOPIC, FIRST, 2, 0, -1, [DONE], 0) is ErrorCode.FENCED_LEADER_EPOCH
        assert await second.summarize(KEY) == StateSummary(ErrorCode.NONE, None, 2, 1, 5, 0)
        await second.stop()

    run(test)


def test_a_topic_that_is_deleted_while_the_log_is_read_leaves_no_state() -> None:
    async def test(environment: Environment) -> None:
        first = environment.coordinator()
        await first.initialize(KEY, 2, 5)
        await first.stop()
        environment.log.may_be_read.clear()
        second = environment.coordinator()
        forgetting = asyncio.ensure_future(second.forget_topics(frozenset({TOPIC})))
        for _ in range(10):
            await asyncio.sleep(0)
        environment.log.may_be_read.set()
        await forgetting
        assert (await second.summarize(KEY)).start_offset == -1, "nothing is known of it"
        await second.stop()

    run(test)


def test_the_first_to_initialize_waits_for_the_topic_it_has_made() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator(leads=False)
        first = asyncio.ensure_future(coordinator.initialize(KEY, 0, 5))
        other = asyncio.ensure_future(coordinator.initialize(KEY._replace(partition=PartitionId(1)), 0, 5))
        await asyncio.sleep(0)
        assert await coordinator.write(GROUP, TOPIC, FIRST, 0, 0, 5, [], 0) is ErrorCode.NOT_COORDINATOR, (
            "others do not"
        )
        assert not first.done()
        lead(coordinator)
        assert [(await each).error for each in (first, other)] == [ErrorCode.NONE] * 2
        await coordinator.stop()

    run(test)


def test_reading_what_nobody_initialized_says_so() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator()
        with pytest.raises(ApiError, match="uninitialized") as refused:
            await coordinator.read(GROUP, TOPIC, FIRST, 0)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert await coordinator.write(GROUP, TOPIC, FIRST, 0, 0, 5, [], 0) is ErrorCode.INVALID_REQUEST
        await coordinator.stop()

    run(test)


def test_nobody_answers_for_partitions_led_elsewhere() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator()
        coordinator.on_resign(coordinator.partition_for(coordinator_key(*KEY)))
        with pytest.raises(NotCoordinator):
            await coordinator.read(GROUP, TOPIC, FIRST, 0)
        assert await coordinator.write(GROUP, TOPIC, FIRST, 0, 0, 5, [], 0) is ErrorCode.NOT_COORDINATOR
        await coordinator.stop()

    run(test)


def test_who_listens_hears_of_share_partitions_that_start_over() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator()
        heard: list[SharePartitionKey] = []
        coordinator.on_starting_over(heard.append)
        await coordinator.initialize(KEY, 2, 5)
        await coordinator.write(GROUP, TOPIC, FIRST, 2, 0, -1, [DONE], 0)
        assert heard == [KEY]
        assert (await coordinator.initialize(KEY, 1, 0)).error is ErrorCode.FENCED_STATE_EPOCH
        assert await coordinator.initialize(KEY, 3, 0, only_if_new=True) == StateChanged()
        assert heard == [KEY]
        await coordinator.change(DeleteState(KEY))
        assert heard == [KEY, KEY]
        await coordinator.stop()

    run(test)


def test_the_beginning_of_the_log_goes_when_it_is_not_needed() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator(updates=0)
        await coordinator.initialize(KEY, 0, 5)
        await coordinator.prune()
        assert environment.deleted == [], "everything is needed"
        await coordinator.write(GROUP, TOPIC, FIRST, 0, 0, -1, [DONE], 0)
        await coordinator.prune()
        await coordinator.prune()
        assert environment.deleted == [(coordinator.partition_for(coordinator_key(*KEY)), 1)]
        await coordinator.stop()

    run(test)


def test_deleted_topics_take_their_state_along() -> None:
    async def test(environment: Environment) -> None:
        coordinator = environment.coordinator()
        for partition in range(4):
            await coordinator.initialize(KEY._replace(partition=PartitionId(partition)), 0, 5)
        old = empty_image("c")
        parts = (PartitionImage(FIRST, BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),), 0),)
        topic = TopicImage(TopicName("t"), TOPIC, parts)
        there = old._replace(topics={topic.name: topic}, topics_by_id={TOPIC: topic})
        coordinator.on_metadata(there, there._replace(configs={}))
        coordinator.on_metadata(there, old)
        while (await coordinator.summarize(KEY)).start_offset != -1:
            await asyncio.sleep(0)
        await coordinator.stop()

    run(test)
