import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from ottla.metadata.quorum.batches import encode_records
from ottla.metadata.quorum.delivery import Delivery
from ottla.metadata.quorum.metadata_log import MetadataLog, MetadataLogConfig
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch, SnapshotRecords
from ottla.protocol.compiled import Steps
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.quorum.control_records import LEADER_CHANGE, encode_control_batch
from ottla.quorum.effects import ControlRecord
from ottla.testing import FaultyFS, ManualClock


class Recorder:
    def __init__(self) -> None:
        self.events: list[object] = []

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> Steps[None] | None:
        self.events.append((snapshot, *records))
        return None

    def handle_commit(self, batch: CommittedBatch) -> None:
        self.events.append((batch.base_offset, *batch.records))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.events.append(leader)


class Node:
    """A host without a quorum: the test commits."""

    def __init__(self) -> None:
        self.fs = FaultyFS(seed=3)
        self.fs.make_directory("/data")
        self.clock = ManualClock()
        self.log = MetadataLog.open("/data", MetadataLogConfig(), fs=self.fs, clock=self.clock)
        self.high_watermark: int | None = None
        self.problems: list[BaseException] = []
        self.moved = asyncio.Event()
        self.is_due = False
        self.snapshots: list[tuple[OffsetAndEpoch, list[bytes]]] = []

    def delivered(self) -> None:
        self.moved.set()

    def snapshot_is_due(self, bytes_since: int) -> bool:
        return self.is_due and bytes_since > 0

    def begin_snapshot(self, at: OffsetAndEpoch, records: Iterable[bytes]) -> None:
        self.snapshots.append((at, list(records)))

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)
        self.moved.set()

    def append(self, *values: bytes, epoch: int = 1) -> None:
        base = self.log.end.offset
        self.log.append(encode_records(values, base_offset=base, epoch=epoch, now_ms=5), base)

    def append_leader(self, epoch: int) -> None:
        base = self.log.end.offset
        message = LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[])
        batch = encode_control_batch([ControlRecord(LEADER_CHANGE, message)], base_offset=base, epoch=epoch, now_ms=5)
        self.log.append(batch, base)

    def commit(self, delivery: Delivery) -> None:
        self.high_watermark = self.log.end.offset
        self.log.note_committed(self.high_watermark)
        delivery.wake()

    async def until(self, delivery: Delivery, offset: int) -> None:
        while delivery.next_offset < offset and not self.problems:
            await asyncio.wait_for(self.moved.wait(), 30)
            self.moved.clear()

    def snapshot(self, at: OffsetAndEpoch, *values: bytes) -> None:
        writer = self.log.new_snapshot(at, [])
        writer.add_all(values)
        self.log.has_written(at, writer.finish())


@asynccontextmanager
async def delivering(
    node: Node, listener: Recorder, snapshot_records: SnapshotRecords | None = None
) -> AsyncIterator[Delivery]:
    with ThreadPoolExecutor(1) as threads:
        made = Delivery(listener, node.log, node.fs, node, threads, snapshot_records)
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_only_committed_records_are_delivered_and_control_records_are_not() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        async with delivering(node, listener) as delivery:
            node.append_leader(1)
            node.append(b"a", b"b")
            node.commit(delivery)
            node.append(b"not committed")
            await node.until(delivery, 3)
            delivery.wake()
            await asyncio.sleep(0)
        assert listener.events == [(1, b"a", b"b")]

    asyncio.run(run())


def test_this_nodes_leadership_is_announced_behind_everything_of_earlier_epochs() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        node.append(b"a")
        node.append_leader(2)
        async with delivering(node, listener) as delivery:
            delivery.leader_changed(LeaderAndEpoch(3, 1), 0)
            delivery.leader_changed(LeaderAndEpoch(1, 2), 2)
            assert listener.events == [(3, 1)]
            node.commit(delivery)
            await node.until(delivery, 2)
        assert listener.events == [(3, 1), (0, b"a"), (1, 2)]

    asyncio.run(run())


def test_a_listener_that_is_behind_the_log_gets_the_newest_snapshot() -> None:
    async def run() -> None:
        node, listener, late = Node(), Recorder(), Recorder()
        async with delivering(node, listener) as delivery:
            node.append(b"a")
            node.append(b"b")
            node.commit(delivery)
            await node.until(delivery, 2)
            node.snapshot(OffsetAndEpoch(2, 1), b"ab")
            node.append(b"c")
            node.commit(delivery)
            await node.until(delivery, 3)
        async with delivering(node, late) as delivery:
            await node.until(delivery, 3)
        assert listener.events == [(0, b"a", b"b"), (2, b"c")]
        assert late.events == [(OffsetAndEpoch(2, 1), b"ab"), (2, b"c")]

    asyncio.run(run())


def test_an_empty_snapshot_of_a_formatted_directory_is_delivered_once() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        writer_at = OffsetAndEpoch(0, 0)
        from ottla.metadata.quorum.snapshots import SnapshotWriter

        writer = SnapshotWriter(node.fs, node.log.directory, writer_at, last_append_time_ms=0, of_voters=[], now_ms=0)
        node.log.has_written(writer_at, writer.finish())
        node.append(b"a")
        async with delivering(node, listener) as delivery:
            node.commit(delivery)
            await node.until(delivery, 1)
        assert listener.events == [(writer_at,), (0, b"a")]

    asyncio.run(run())


def test_a_snapshot_is_begun_when_it_is_due_and_the_state_is_between_transactions() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        node.is_due = True
        states: list[list[bytes] | None] = [None, [b"state"]]
        async with delivering(node, listener, snapshot_records=lambda: states.pop(0)) as delivery:
            node.append(b"begin")
            node.commit(delivery)
            await node.until(delivery, 1)
            node.append(b"end")
            node.commit(delivery)
            await node.until(delivery, 2)
        assert node.snapshots == [(OffsetAndEpoch(2, 1), [b"state"])]

    asyncio.run(run())


def test_small_batches_of_one_epoch_are_delivered_together_up_to_a_number() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        for number in range(300):
            node.append(b"%d" % number)
        node.append_leader(2)
        node.append(b"a", b"b")
        async with delivering(node, listener) as delivery:
            node.commit(delivery)
            await node.until(delivery, 303)
        batches = [event for event in listener.events if isinstance(event, tuple)]
        assert [batch[0] for batch in batches] == [0, 200, 301]
        values = [value for batch in batches for value in batch[1:]]
        assert values == [*(b"%d" % number for number in range(300)), b"a", b"b"]

    asyncio.run(run())


def test_a_listener_that_fails_ends_the_node() -> None:
    async def run() -> None:
        class Broken(Recorder):
            def handle_commit(self, batch: CommittedBatch) -> None:
                raise ValueError("not understood")

        node = Node()
        async with delivering(node, Broken()) as delivery:
            node.append(b"a")
            node.commit(delivery)
            await node.until(delivery, 1)
        assert [str(problem) for problem in node.problems] == ["not understood"]

    asyncio.run(run())


def test_the_last_snapshot_stands_for_what_was_delivered_if_that_is_much() -> None:
    async def run() -> None:
        node, listener = Node(), Recorder()
        async with delivering(node, listener, snapshot_records=lambda: iter([b"state"])) as delivery:
            assert delivery.last_snapshot(0) is None  # nothing was delivered
            node.append(b"a", b"b")
            node.commit(delivery)
            node.append(b"not committed")
            await node.until(delivery, 2)
            last = delivery.last_snapshot(1)
            assert last is not None
            assert (last[0], list(last[1])) == (OffsetAndEpoch(2, 1), [b"state"])
            assert delivery.last_snapshot(1 << 20) is None

    asyncio.run(run())


def test_a_large_snapshot_lets_others_have_the_loop() -> None:
    async def run() -> None:
        node = Node()
        seen: list[str] = []

        class Slow(Recorder):
            def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> Steps[None]:
                for _ in range(3):
                    node.clock.advance(ms=10)
                    seen.append("step")
                    yield
                self.events.append((snapshot, *records))

        async def others() -> None:
            while True:
                seen.append("others")
                await asyncio.sleep(0)

        node.append(b"a")
        node.snapshot(OffsetAndEpoch(1, 1), b"of it")
        listener = Slow()
        async with delivering(node, listener) as delivery:
            beside = asyncio.create_task(others())
            node.append(b"b")
            node.commit(delivery)
            await node.until(delivery, 2)
            beside.cancel()
        assert listener.events == [(OffsetAndEpoch(1, 1), b"of it"), (1, b"b")]
        first = seen.index("step")
        last = len(seen) - 1 - seen[::-1].index("step")
        assert seen[first : last + 1].count("others") >= 2

    asyncio.run(run())
