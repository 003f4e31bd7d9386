"""A machine that adds, and what runs it: a log in memory whose writes end when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ottla.coordination.producers import ProducerStateEntry
from ottla.coordination.state_machine import Append, Effect, LongDecision, Notify, Reply, Request, SetTimer, TimerFired
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.errors import (
    ApiError,
    ErrorCode,
)
from ottla.ids import LeaderEpoch, PartitionId
from ottla.log.producer_state import Origin, ProducerState
from ottla.records.batch import Buffer, iter_batches, read_header
from ottla.records.control import decode_end_transaction
from ottla.records.record import decode_records

P, EPOCH = PartitionId(7), LeaderEpoch(0)


@dataclass(slots=True, eq=False)
class Do(Request[Any]):
    """Numbers to "add", "get", "park", "bug"; what is added by "promise", after a producer, counts when the producer's
    transaction has been committed; "tell" adds and tells of it."""

    kind: str
    rest: tuple[Any, ...] = ()


class Adder:
    """A machine whose state is a sum."""

    is_compacted = False

    def __init__(self) -> None:
        self.records = Numbers()
        self.total = 0
        self.positions: list[int] = []
        self.pending: dict[int, int] = {}
        self.parked: list[Any] = []
        self.first_effects: list[Effect | None] = []

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        if isinstance(event, TimerFired):
            return [Reply(request, event.key) for request in self.parked]
        kind, rest = event.kind, event.rest
        if kind == "add":
            return [Append(rest), Reply(event, self.total + sum(rest))]
        if kind == "tell":
            return [Append(rest), Notify(f"added {sum(rest)}"), Reply(event, None)]
        if kind == "promise":
            producer, *numbers = rest
            return [Append(tuple(numbers), producer), Reply(event, self.pending.get(producer.producer_id, 0))]
        if kind == "get":
            return [Reply(event, self.total)]
        if kind == "park":
            self.parked.append(event)
            return [SetTimer(("wake", "up"), rest[0])] if rest else []
        raise ValueError("a defect")

    def replay(self, record: int, position: int, producer_id: int) -> None:
        self.positions.append(position)
        if producer_id >= 0:
            self.pending[producer_id] = self.pending.get(producer_id, 0) + record
        else:
            self.total += record

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        if committed is None:
            raise ValueError("a defect")
        self.total += self.pending.pop(producer_id, 0) if committed else 0

    def loaded(self, now_ms: int) -> LongDecision:
        yield from self.first_effects


class Numbers:
    """Records of one number each; key "x" is of a kind nobody knows."""

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        return b"n", str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        return int(value or b"0") if key == b"n" else None


class MemoryLog:
    """One partition, all in memory; writes end at once unless they are `held`."""

    def __init__(self, partition: PartitionId = P) -> None:
        self.partition = partition
        self.batches: list[bytes] = []
        self.writes: list[tuple[bytes, asyncio.Future[None]]] = []
        self.held = False
        self.unreadable: Exception | None = None
        self.state = ProducerState()

    @property
    def numbers(self) -> list[list[int]]:
        return [
            [int(record.value or b"") for record in decode_records(batch)]
            for batch in self.batches
            if not read_header(batch).is_control
        ]

    async def append_committed(self, partition: PartitionId, batch: bytearray) -> object:
        assert partition == self.partition
        if self.held:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.writes.append((bytes(batch), future))
            await future
        self.store(bytes(batch))
        return None

    def store(self, batch: bytes) -> None:
        end = sum(header.record_count for stored in self.batches for header in iter_batches(stored))
        for header in iter_batches(batch):
            placed = end.to_bytes(8, "big") + batch[header.position + 8 : header.end_position]
            self.batches.append(placed)
            end += header.record_count
            self.remember(placed)

    def remember(self, batch: bytes) -> None:
        header = read_header(batch)
        marker = decode_end_transaction(batch, header) if header.is_control else None
        if marker is not None:
            self.state.check_marker(header, marker, Origin.COORDINATOR)
            self.state.end_transaction(header, marker)
        elif header.is_transactional:
            self.state.check(header, Origin.COORDINATOR)
            self.state.add(header)

    def producer(self, partition: PartitionId, producer_id: int) -> ProducerStateEntry | None:
        found = self.state.producers.get(producer_id)
        if found is None:
            return None
        return ProducerStateEntry(found.epoch, found.coordinator_epoch, found.transaction_first_offset is not None)

    async def read_all(self, partition: PartitionId) -> AsyncIterator[Buffer]:
        for batch in list(self.batches):
            if self.unreadable is not None:
                raise self.unreadable
            yield batch


class Clock:
    def __init__(self) -> None:
        self.at = 100.0
        self.step_s = 0.0
        """How much time passes whenever somebody looks at it."""

    def monotonic(self) -> float:
        self.at += self.step_s
        return self.at

    def boottime(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return int(self.at * 1_000)


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.log = MemoryLog()
        self.clock = Clock()
        self.machines: list[Adder] = []
        self.first_effects: list[Effect | None] = []
        """What machines ask for when they have been loaded."""
        self.heard: list[tuple[PartitionId, LeaderEpoch, Any]] = []
        self.runtime: CoordinatorRuntime[Any, int] = CoordinatorRuntime(
            "test", self.log, self.new_machine, self.clock, listener=lambda *heard: self.heard.append(heard), **settings
        )

    def new_machine(self) -> Adder:
        self.machines.append(Adder())
        self.machines[-1].first_effects = self.first_effects
        return self.machines[-1]

    async def lead(self) -> None:
        self.runtime.on_leadership(P, EPOCH)
        await settle()
        assert self.runtime.is_active(P)

    def submit(self, kind: str, *rest: Any) -> "asyncio.Future[Any]":
        return self.runtime.submit(P, Do(kind, rest))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        bench = Bench(**settings)
        try:
            await test(bench)
        finally:
            await bench.runtime.stop()

    asyncio.run(main())


def code_of(future: "asyncio.Future[Any]") -> ErrorCode:
    error = future.exception()
    assert isinstance(error, ApiError)
    return error.code
