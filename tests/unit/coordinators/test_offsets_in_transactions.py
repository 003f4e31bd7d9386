"""Offsets that a producer commits: verified with the transaction coordinator, then written within its transaction."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import pytest
from tests.unit.coordinators.adder import MemoryLog, settle

from ottla.clock import SystemClock
from ottla.cluster.image import GROUP_METADATA_TOPIC
from ottla.config.loading import load
from ottla.coordination.markers import TransactionMarker
from ottla.coordinators.group_coordinator import GroupCoordinator
from ottla.coordinators.topic import CoordinatorTopic
from ottla.coordinators.verification import FIRST, SECOND, Generation, TransactionVerifier
from ottla.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaStorageError,
)
from ottla.groups.events import CommitOffsets, FetchOffsets, OffsetsCommitted, OffsetToCommit, TopicPartitions
from ottla.ids import GroupId, LeaderEpoch, MemberId, PartitionId, ProducerIdAndEpoch, TopicName, TopicPartition
from ottla.records.batch import read_header

ZERO = PartitionId(0)
T, G = TopicName("t"), GroupId("g")
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, ZERO)
SEVEN = ProducerIdAndEpoch(7, 3)


class Bench:
    """`answer` is what the transaction coordinator says; it thinks for as long as `thinking` is not set."""

    def __init__(self, **settings: str) -> None:
        self.log = MemoryLog(ZERO)
        topic = CoordinatorTopic(GROUP_METADATA_TOPIC, self.log, self.no_topic, 1)
        self.groups = GroupCoordinator(topic, SystemClock())
        config, _ = load(None, {name.replace("_", "."): value for name, value in settings.items()})
        self.verifier = TransactionVerifier(self, lambda: config)
        self.answer = ErrorCode.NONE
        self.asked: list[bool] = []
        self.thinking = asyncio.Event()
        self.thinking.set()

    async def no_topic(self) -> None:
        raise AssertionError("nobody asked for the topic")

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert (transactional_id, producer_id, producer_epoch) == ("x", 7, 3)
        assert list(partitions) == [OFFSETS]
        self.asked.append(verify_only)
        await self.thinking.wait()
        return {OFFSETS: self.answer}

    def commit(self, offset: int, producer: ProducerIdAndEpoch = SEVEN, generation: Generation = FIRST) -> Any:
        wish = OffsetToCommit(T, ZERO, offset)
        event = CommitOffsets(G, MemberId(""), None, -1, (wish,), producer=producer)
        return self.groups.commit_offsets_in_transaction(event, "x", self.verifier, generation)

    async def end(self, *, committed: bool = True, epoch: int = 3) -> None:
        await self.groups.end_transaction(ZERO, TransactionMarker(7, epoch, 0, committed))

    async def committed(self) -> int:
        fetched = await self.groups.fetch_offsets(FetchOffsets(G, (TopicPartitions(T, (ZERO,)),)))
        return fetched.topics[0].offsets[0].offset


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def main() -> None:
        bench = Bench(**settings)
        try:
            bench.groups.on_leadership(ZERO, LeaderEpoch(0))
            await settle()
            await test(bench)
        finally:
            await bench.groups.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("generation", "verify_only"), [(FIRST, True), (SECOND, False)])
def test_offsets_come_into_force_with_their_transaction(generation: Generation, verify_only: bool) -> None:
    async def test(bench: Bench) -> None:
        for offset in (5, 6):
            assert await bench.commit(offset, generation=generation) == OffsetsCommitted((ErrorCode.NONE,))
        assert bench.asked == [verify_only], "once a transaction"
        assert await bench.committed() == -1
        await bench.end()
        assert await bench.committed() == 6
        headers = [read_header(batch) for batch in bench.log.batches]
        assert [(h.producer_id, h.producer_epoch, h.is_control) for h in headers] == [
            (7, 3, False),
            (7, 3, False),
            (7, 3, True),
        ]

    run(test)


def test_what_the_coordinator_refuses_is_not_written() -> None:
    async def test(bench: Bench) -> None:
        bench.answer = ErrorCode.TRANSACTION_ABORTABLE
        with pytest.raises(ApiError) as raised:
            await bench.commit(5)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE
        assert bench.log.batches == []

    run(test)


def test_a_transaction_that_ends_meanwhile_takes_no_more_offsets() -> None:
    """Nobody would ever end them."""

    async def test(bench: Bench) -> None:
        bench.thinking.clear()
        late = asyncio.ensure_future(bench.commit(5))
        await settle()
        await bench.end(committed=False)
        bench.thinking.set()
        with pytest.raises(InvalidTxnState):
            await late
        assert await bench.committed() == -1

    run(test)


def test_a_producer_that_is_fenced_meanwhile_is_refused() -> None:
    async def test(bench: Bench) -> None:
        bench.thinking.clear()
        late = asyncio.ensure_future(bench.commit(5, generation=SECOND))
        await settle()
        await bench.end(committed=False, epoch=4)
        bench.thinking.set()
        with pytest.raises(InvalidProducerEpoch):
            await late
        with pytest.raises(InvalidProducerEpoch):
            await bench.commit(5)
        assert len(bench.asked) == 1, "who is fenced already need not be verified"

    run(test)


def test_a_coordinator_that_starts_over_meanwhile_asks_to_come_back() -> None:
    async def test(bench: Bench) -> None:
        bench.thinking.clear()
        waiting = asyncio.ensure_future(bench.commit(5))
        await settle()
        bench.log.held = True
        failing = asyncio.ensure_future(bench.end())
        await settle()
        bench.log.writes[0][1].set_exception(KafkaStorageError("no space"))
        bench.log.held = False
        await asyncio.gather(failing, return_exceptions=True)
        await settle()
        bench.thinking.set()
        with pytest.raises(CoordinatorLoadInProgress):
            await waiting
        assert await bench.commit(5) == OffsetsCommitted((ErrorCode.NONE,))

    run(test)


def test_nobody_is_verified_where_that_is_off() -> None:
    async def test(bench: Bench) -> None:
        await bench.commit(5)
        assert bench.asked == []
        await bench.end()
        assert await bench.committed() == 5

    run(test, transaction_partition_verification_enable="false")


def test_a_group_has_a_name() -> None:
    async def test(bench: Bench) -> None:
        wish = OffsetToCommit(T, ZERO, 5)
        event = CommitOffsets(GroupId(""), MemberId(""), None, -1, (wish,), producer=SEVEN)
        reply = await bench.groups.commit_offsets_in_transaction(event, "x", bench.verifier, FIRST)
        assert reply == OffsetsCommitted((ErrorCode.INVALID_GROUP_ID,))

    run(test)
