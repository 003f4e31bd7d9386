"""Markers that are written, and those that are not: the answers to the transaction coordinator."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.clock import SystemClock
from ottla.cluster.image import GROUP_METADATA_TOPIC
from ottla.coordination.markers import TransactionMarker
from ottla.coordinators.markers import LocalMarkers
from ottla.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidProducerEpoch,
    KafkaStorageError,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from ottla.ids import PartitionId, TopicName, TopicPartition
from ottla.log.producer_state import Origin
from ottla.records.batch import read_header
from ottla.records.control import decode_end_transaction
from ottla.replication.timeouts import Timeouts

A, B = (TopicPartition(TopicName("t"), PartitionId(number)) for number in (0, 1))
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, PartitionId(0))
MARKER = TransactionMarker(7, 3, 5, committed=True)


class Led:
    """A partition that appends at once, and commits when the test says so."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.failure: Exception | None = None
        self.waiting: list[tuple[int, Any]] = []

    def append(self, batch: bytearray, origin: Origin, *, bears_next_epoch: bool) -> Any:
        assert origin is Origin.COORDINATOR
        assert not bears_next_epoch
        if self.failure is not None:
            raise self.failure
        self.batches.append(bytes(batch))
        return SimpleNamespace(last_offset=len(self.batches) - 1)

    def when_committed(self, end: int, key: int, waiter: Any) -> None:
        self.waiting.append((key, waiter))

    def settle(self, code: ErrorCode | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for key, waiter in waiting:
            waiter.committed(key) if code is None else waiter.failed(key, code)


class Bench:
    """Two partitions, and the group coordinator's."""

    def __init__(self) -> None:
        self.led = {A: Led(), B: Led(), OFFSETS: Led()}
        self.timeouts = Timeouts(asyncio.get_running_loop())
        self.offsets_end: Callable[[], asyncio.Future[None]] = self.done
        self.markers = LocalMarkers(cast(Any, self), cast(Any, self), SystemClock(), timeout_ms=50)

    def for_produce(self, topic: str, partition: int, acks: int, client_id: str) -> Led:
        found = self.led.get(TopicPartition(TopicName(topic), PartitionId(partition)))
        if found is None:
            raise UnknownTopicOrPartition("not here")
        return found

    def end_transaction(self, partition: int, marker: TransactionMarker) -> "asyncio.Future[None]":
        assert (partition, marker) == (0, MARKER)
        return self.offsets_end()

    def done(self, failure: Exception | None = None) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
        return future

    async def send(self, *partitions: TopicPartition) -> "asyncio.Task[Any]":
        task = asyncio.ensure_future(cast(Any, self.markers.send(MARKER, partitions)))
        await asyncio.sleep(0)
        return task


def test_the_answer_comes_when_every_marker_is_committed() -> None:
    async def main() -> None:
        bench = Bench()
        sent = await bench.send(A, B, OFFSETS)
        bench.led[A].settle()
        await asyncio.sleep(0)
        assert not sent.done()
        bench.led[B].settle()
        assert await sent == dict.fromkeys((A, B, OFFSETS), ErrorCode.NONE)
        assert bench.led[OFFSETS].batches == [], "that is for the group coordinator to write"
        for partition in (A, B):
            (batch,) = bench.led[partition].batches
            header = read_header(batch)
            written = decode_end_transaction(batch, header)
            assert written is not None
            assert (header.producer_id, header.producer_epoch) == (7, 3)
            assert (written.is_abort, written.coordinator_epoch) == (False, 5)

    asyncio.run(main())


def test_partitions_fail_one_by_one() -> None:
    async def main() -> None:
        bench = Bench()
        bench.led[A].failure = InvalidProducerEpoch("late")
        gone = TopicPartition(TopicName("gone"), PartitionId(0))
        sent = await bench.send(A, B, gone)
        bench.led[B].settle(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await sent == {
            A: ErrorCode.INVALID_PRODUCER_EPOCH,
            B: ErrorCode.KAFKA_STORAGE_ERROR,
            gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    asyncio.run(main())


def test_a_commit_that_never_comes_is_not_waited_for() -> None:
    async def main() -> None:
        assert await (await Bench().send(A)) == {A: ErrorCode.REQUEST_TIMED_OUT}

    asyncio.run(main())


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotCoordinator("moved"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (CoordinatorLoadInProgress("being read"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "late"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (KafkaStorageError("full"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_transaction_coordinator_knows_nothing_of_groups(failure: Exception, told: ErrorCode, at_once: bool) -> None:
    async def main() -> None:
        bench = Bench()

        def refuse() -> "asyncio.Future[None]":
            if at_once:
                raise failure
            return bench.done(failure)

        bench.offsets_end = refuse
        assert await (await bench.send(OFFSETS)) == {OFFSETS: told}

    asyncio.run(main())
