"""The coordinator's edge: producer ids, markers that fail and are sent again, what is listed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import pytest

from ottla.clock import SystemClock
from ottla.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.coordination.markers import TransactionMarker
from ottla.coordinators import transaction_coordinator
from ottla.coordinators.topic import CoordinatorTopic
from ottla.coordinators.transaction_coordinator import TransactionCoordinator, unknown_states
from ottla.errors import ApiError, CoordinatorLoadInProgress, ErrorCode, KafkaStorageError, NotCoordinator
from ottla.ids import LeaderEpoch, PartitionId, ProducerId, ProducerIdAndEpoch, TopicName, TopicPartition
from ottla.records.batch import Buffer
from ottla.transactions.epochs import LAST_EPOCH_OF_CLIENTS
from ottla.transactions.events import Granted
from ottla.transactions.states import COMPLETE_COMMIT, PREPARE_COMMIT

P0, P1 = (TopicPartition(TopicName("orders"), PartitionId(number)) for number in range(2))
EPOCH = LeaderEpoch(3)
NONE = ErrorCode.NONE


class MemoryLog:
    """All partitions in memory."""

    def __init__(self) -> None:
        self.batches: dict[PartitionId, list[bytes]] = {}
        self.fails: Exception | None = None
        self.held: asyncio.Event | None = None
        self.is_writing = False

    async def append_committed(self, partition: PartitionId, batch: bytearray) -> object:
        if self.held is not None:
            self.is_writing = True
            await self.held.wait()
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        self.batches.setdefault(partition, []).append(bytes(batch))
        return None

    async def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        for batch in list(self.batches.get(partition, ())):
            yield batch

    def producer(self, partition: PartitionId, producer_id: int) -> None:
        return None


class Markers:
    """Answers as the test has it: a queue of answers per partition, NONE when that is empty."""

    def __init__(self) -> None:
        self.sent: list[tuple[TransactionMarker, frozenset[TopicPartition]]] = []
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        self.held: asyncio.Event | None = None
        self.fails: Exception | None = None

    async def send(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.sent.append((marker, frozenset(partitions)))
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        if self.held is not None:
            await self.held.wait()
        return {
            partition: self.answers[partition].pop(0) if self.answers.get(partition) else NONE
            for partition in partitions
        }


class Bench:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.markers = Markers()
        self.given = 0
        self.deleted: set[TopicPartition] = set()
        topic = CoordinatorTopic(TRANSACTION_STATE_TOPIC, self.log, self.no_topic, 4)
        self.coordinator = TransactionCoordinator(
            topic,
            self.markers,
            SystemClock(),
            next_producer_id=self.next_producer_id,
            exists=lambda partition: partition not in self.deleted,
        )

    async def no_topic(self) -> None:
        raise AssertionError("nobody asked for the topic")

    async def next_producer_id(self) -> ProducerId:
        self.given += 1
        return ProducerId(100 + self.given)

    async def lead(self) -> None:
        for partition in range(4):
            self.coordinator.on_leadership(PartitionId(partition), EPOCH)
        while not all(self.coordinator.is_active(PartitionId(partition)) for partition in range(4)):
            await asyncio.sleep(0)

    async def begun(self, name: str = "t", *partitions: TopicPartition) -> ProducerIdAndEpoch:
        """A producer within a transaction."""
        granted = await self.coordinator.init_producer(name, 60_000)
        assert granted.error is NONE
        added = await self.coordinator.add_partitions(
            name, granted.producer_id, granted.producer_epoch, partitions or (P0, P1), verify_only=False
        )
        assert set(added.values()) == {NONE}
        return ProducerIdAndEpoch(granted.producer_id, granted.producer_epoch)

    async def end(self, producer: ProducerIdAndEpoch, name: str = "t") -> Granted:
        return await self.coordinator.end_transaction(name, producer, committed=True, client_version=2)

    async def until_complete(self, name: str = "t") -> None:
        while (await self.coordinator.describe(name)).state is not COMPLETE_COMMIT:
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(transaction_coordinator, "LAST_RETRY_S", 0.002)


def run(test: Callable[[Bench], Awaitable[None]], *, lead: bool = True) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            if lead:
                await bench.lead()
            async with asyncio.timeout(10):
                await test(bench)
        finally:
            await bench.coordinator.stop()

    asyncio.run(main())


def test_a_transaction_lives_its_life() -> None:
    async def test(bench: Bench) -> None:
        producer = await bench.begun()
        verified = await bench.coordinator.add_partitions("t", *producer, [P0], verify_only=True)
        assert verified == {P0: NONE}
        granted = await bench.end(producer)
        assert granted == (NONE, producer.producer_id, 1)
        await bench.until_complete()
        marker = TransactionMarker(producer.producer_id, 1, EPOCH, committed=True, transaction_version=2)
        assert bench.markers.sent == [(marker, {P0, P1})]
        assert bench.given == 1

    run(test)


def test_an_empty_id_is_no_id() -> None:
    async def test(bench: Bench) -> None:
        producer = ProducerIdAndEpoch(1, 0)
        assert (await bench.coordinator.init_producer("", 1)).error is ErrorCode.INVALID_REQUEST
        for verify_only in (False, True):
            added = await bench.coordinator.add_partitions("", *producer, [P0], verify_only=verify_only)
            assert added == {P0: ErrorCode.INVALID_REQUEST}
        assert (await bench.end(producer, "")).error is ErrorCode.INVALID_REQUEST
        with pytest.raises(ApiError) as caught:
            await bench.coordinator.describe("")
        assert caught.value.code is ErrorCode.INVALID_REQUEST

    run(test)


def test_an_id_has_to_fit_into_a_record() -> None:
    async def test(bench: Bench) -> None:
        longest = "é" * 16_383
        assert (await bench.coordinator.init_producer(longest, 60_000)).error is NONE
        assert (await bench.coordinator.init_producer(longest + "éé", 60_000)).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert {listing.transactional_id for listing in await bench.coordinator.list_transactions()} == {longest}

    run(test)


def test_a_producer_id_is_fetched_only_where_one_is_needed() -> None:
    async def test(bench: Bench) -> None:
        granted = await bench.coordinator.init_producer("t", 60_000)
        for epoch in range(1, 4):
            assert await bench.coordinator.init_producer("t", 60_000) == (NONE, granted.producer_id, epoch)
        assert bench.given == 1

    run(test)


def test_markers_are_sent_again_where_they_failed() -> None:
    async def test(bench: Bench) -> None:
        bench.markers.answers = {
            P0: [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT],
        }
        await bench.end(await bench.begun())
        await bench.until_complete()
        assert [partitions for _, partitions in bench.markers.sent] == [{P0, P1}, {P0}, {P0}, {P0}]

    run(test)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_some_partitions_need_no_marker(error: ErrorCode) -> None:
    """Kafka leaves the transaction prepared for ever where a partition knows a later epoch."""

    async def test(bench: Bench) -> None:
        bench.markers.answers = {P1: [error]}
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            bench.deleted.add(P1)
        await bench.end(await bench.begun())
        await bench.until_complete()
        assert len(bench.markers.sent) == 1

    run(test)


def test_a_partition_that_is_just_being_created_gets_its_marker() -> None:
    async def test(bench: Bench) -> None:
        bench.markers.answers = {P1: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
        await bench.end(await bench.begun())
        await bench.until_complete()
        assert [partitions for _, partitions in bench.markers.sent] == [{P0, P1}, {P1}]

    run(test)


def test_a_defect_does_not_leave_a_transaction_open(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.markers.fails = ValueError("a defect")
        await bench.end(await bench.begun())
        await bench.until_complete()
        assert [partitions for _, partitions in bench.markers.sent] == [{P0, P1}] * 2

    run(test)
    assert "cannot be sent" in caplog.text


def test_a_coordinator_that_is_fenced_leaves_the_rest_to_its_successor() -> None:
    async def test(bench: Bench) -> None:
        bench.markers.answers = {P1: [ErrorCode.TRANSACTION_COORDINATOR_FENCED]}
        await bench.end(await bench.begun())
        while not bench.markers.sent:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await bench.coordinator.describe("t")).state is PREPARE_COMMIT
        assert len(bench.markers.sent) == 1

    run(test)


def test_a_successor_sends_the_markers_in_its_own_epoch() -> None:
    async def test(bench: Bench) -> None:
        bench.markers.held = asyncio.Event()
        await bench.end(await bench.begun())
        while not bench.markers.sent:
            await asyncio.sleep(0)
        partition = bench.coordinator.partition_for("t")
        bench.coordinator.on_resign(partition)
        with pytest.raises(NotCoordinator):
            await bench.coordinator.describe("t")
        bench.coordinator.on_leadership(partition, LeaderEpoch(4))
        await bench.coordinator.until_active(partition)
        while len(bench.markers.sent) < 2:
            await asyncio.sleep(0)
        bench.markers.held.set()
        await bench.until_complete()
        assert [marker.coordinator_epoch for marker, _ in bench.markers.sent] == [EPOCH, 4]

    run(test)


def test_no_marker_is_sent_again_for_a_transaction_that_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers of a machine that is gone are written in the very moment in which its successor begins with them."""

    async def test(bench: Bench) -> None:
        bench.markers.held = held = asyncio.Event()
        await bench.end(await bench.begun())
        while not bench.markers.sent:
            await asyncio.sleep(0)
        runtime = bench.coordinator._runtime
        begin = runtime._listener
        assert begin is not None

        def begin_as_the_others_are_written(*told: Any) -> None:
            held.set()
            begin(*told)

        states = []
        send = bench.markers.send

        async def watched(*asked: Any) -> Mapping[TopicPartition, ErrorCode]:
            machine: Any = runtime._partitions[bench.coordinator.partition_for("t")].machine
            states.append(machine.transactions["t"].state)
            return await send(*asked)

        monkeypatch.setattr(runtime, "_listener", begin_as_the_others_are_written)
        monkeypatch.setattr(bench.markers, "send", watched)
        bench.log.fails = KafkaStorageError("disk full")
        neighbour = next(name for name in map(str, range(100)) if bench.coordinator.partition_for(name) == 0)
        assert bench.coordinator.partition_for("t") == 0
        with pytest.raises(ApiError):
            await bench.coordinator.init_producer(neighbour, 60_000)
        await bench.coordinator.until_active(PartitionId(0))
        await bench.until_complete()
        assert states == [PREPARE_COMMIT]

    run(test)


def test_markers_stop_when_the_partition_is_led_no_more() -> None:
    async def test(bench: Bench) -> None:
        bench.markers.answers = {P0: [ErrorCode.KAFKA_STORAGE_ERROR] * 1_000}
        await bench.end(await bench.begun())
        while len(bench.markers.sent) < 3:
            await asyncio.sleep(0.001)
        bench.coordinator.on_resign(bench.coordinator.partition_for("t"))
        while bench.coordinator._sending:
            await asyncio.sleep(0)
        with pytest.raises(NotCoordinator):
            await bench.coordinator.describe("t")

    run(test)


def test_a_coordinator_that_stops_leaves_no_markers_on_their_way() -> None:
    """The end that was being written when it was asked to stop has markers as well."""

    async def test(bench: Bench) -> None:
        producer = await bench.begun()
        bench.markers.held = asyncio.Event()
        bench.log.held = asyncio.Event()
        ending = asyncio.create_task(bench.end(producer))
        while not bench.log.is_writing:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(bench.coordinator.stop())
        for _ in range(10):
            await asyncio.sleep(0)
        bench.log.held.set()
        await stopping
        assert (await ending).error is NONE
        assert not bench.coordinator._sending

    run(test)


def test_an_end_that_could_not_be_written_has_no_markers() -> None:
    async def test(bench: Bench) -> None:
        producer = await bench.begun()
        bench.log.fails = KafkaStorageError("disk full")
        with pytest.raises(ApiError):
            await bench.end(producer)
        await bench.coordinator.until_active(bench.coordinator.partition_for("t"))
        assert bench.markers.sent == []
        assert (await bench.end(producer)).error is NONE, "it is ongoing still"
        await bench.until_complete()

    run(test)


def test_epochs_that_are_used_up_cost_a_producer_id() -> None:
    async def test(bench: Bench) -> None:
        await bench.begun()
        machine = bench.coordinator._runtime._partitions[bench.coordinator.partition_for("t")].machine
        machine.transactions["t"] = machine.transactions["t"]._replace(producer_epoch=LAST_EPOCH_OF_CLIENTS)  # type: ignore[attr-defined]
        granted = await bench.end(ProducerIdAndEpoch(101, LAST_EPOCH_OF_CLIENTS))
        assert granted == (NONE, 102, 0)
        await bench.until_complete()
        assert (await bench.coordinator.describe("t")).producer_id == 102

    run(test)


def test_transactions_of_all_partitions_are_listed_and_filtered() -> None:
    async def test(bench: Bench) -> None:
        producers = {name: await bench.begun(name) for name in ("pay-1", "pay-2", "ship-1")}
        await bench.end(producers["pay-2"], "pay-2")
        await bench.until_complete("pay-2")
        await bench.coordinator.init_producer("idle", 60_000)

        async def listed(**filters: object) -> set[str]:
            found = await bench.coordinator.list_transactions(**filters)  # type: ignore[arg-type]
            return {listing.transactional_id for listing in found}

        assert await listed() == {"pay-1", "pay-2", "ship-1", "idle"}
        assert await listed(states=["Ongoing"]) == {"pay-1", "ship-1"}
        assert await listed(states=["CompleteCommit", "Empty"]) == {"pay-2", "idle"}
        assert await listed(states=["Dead", "nonsense"]) == set()
        assert await listed(producer_ids=[producers["pay-1"].producer_id, 7]) == {"pay-1"}
        assert await listed(id_pattern="pay-.*") == {"pay-1", "pay-2"}
        assert await listed(id_pattern="pay") == set()
        assert await listed(id_pattern="pay-.*", states=["Ongoing"]) == {"pay-1"}
        assert await listed(longer_than_ms=60_000) == {"idle"}, "which has never begun one"
        assert await listed(longer_than_ms=-1) == await listed(id_pattern="") == await listed()
        with pytest.raises(ApiError) as caught:
            await listed(id_pattern="(")
        assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    run(test)


def test_states_that_there_are_not() -> None:
    assert unknown_states(["Ongoing", "ongoing", "Dead", "PrepareEpochFence", "x"]) == ["ongoing", "x"]


def test_an_id_that_nobody_has_is_not_described() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(ApiError) as caught:
            await bench.coordinator.describe("nobody")
        assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(test)


def test_while_loading_everybody_is_told_to_come_back() -> None:
    async def test(bench: Bench) -> None:
        for partition in range(4):
            bench.coordinator.on_leadership(PartitionId(partition), EPOCH)
        with pytest.raises(CoordinatorLoadInProgress):
            await bench.coordinator.init_producer("t", 60_000)
        with pytest.raises(CoordinatorLoadInProgress):
            await bench.coordinator.list_transactions()

    run(test, lead=False)
