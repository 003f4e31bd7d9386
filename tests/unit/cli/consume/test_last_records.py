"""Where the last records begin, with a consumer of this test's own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.cli.consume import starting
from ottla.cli.consume.starting import last_records
from ottla.client.partition import Partition

P0, P1 = Partition("t", 0), Partition("t", 1)


@dataclass(frozen=True)
class Message:
    place: Partition | None
    at: int | None
    problem: KafkaError | None = None

    def topic(self) -> str | None:
        return None if self.place is None else self.place.topic

    def partition(self) -> int | None:
        return None if self.place is None else self.place.partition

    def offset(self) -> int | None:
        return self.at

    def error(self) -> KafkaError | None:
        return self.problem


@dataclass
class Fake:
    """Answers each `consume` by a function of where the partitions were assigned."""

    answer: Callable[[dict[Partition, int]], Iterable[Message]]
    starts: dict[Partition, int] = field(default_factory=dict)
    assigned: list[dict[Partition, int]] = field(default_factory=list)

    def assign(self, places: list[TopicPartition]) -> None:
        self.starts = {Partition(each.topic, each.partition): each.offset for each in places}
        self.assigned.append(self.starts)

    def unassign(self) -> None:
        self.starts = {}

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return list(self.answer(self.starts))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_SILENCE_S", 0.05)


def found(fake: Fake, ranges: dict[Partition, tuple[int, int]], count: int) -> dict[Partition, int]:
    return last_records(cast("Consumer", fake), ranges, count)


def log(ends: dict[Partition, int], **offsets: Iterable[int]) -> Callable[[dict[Partition, int]], Iterable[Message]]:
    """Partitions with records at these offsets alone, by `p0`, `p1`, and the ends of each."""

    def answer(starts: dict[Partition, int]) -> Iterable[Message]:
        for partition, start in starts.items():
            held = offsets.get(f"p{partition.partition}", ())
            yield from (Message(partition, offset) for offset in held if offset >= start)
            yield Message(partition, ends[partition], KafkaError(KafkaError._PARTITION_EOF))

    return answer


def test_markers_and_what_was_aborted_do_not_count() -> None:
    fake = Fake(log({P0: 20, P1: 5}, p0=[3, 4, 9, 15], p1=[]))
    assert found(fake, {P0: (0, 20), P1: (0, 5)}, 2) == {P0: 9, P1: 5}
    assert found(fake, {P0: (0, 20), P1: (5, 5)}, 100) == {P0: 3, P1: 5}


def test_plain_records_are_looked_at_once() -> None:
    fake = Fake(log({P0: 1000}, p0=range(1000)))
    assert found(fake, {P0: (0, 1000)}, 10) == {P0: 990}
    assert fake.assigned == [{P0: 980}]
    assert found(fake, {P0: (0, 1_000_000)}, 5000) == {P0: 995_000}  # too many to look for


def test_transactions_of_one_record_are_looked_at_once() -> None:
    fake = Fake(log({P0: 1000}, p0=range(0, 1000, 2)))
    assert found(fake, {P0: (0, 1000)}, 10) == {P0: 980}
    assert len(fake.assigned) == 1


def test_a_damaged_partition_does_not_hold_up_the_others() -> None:
    damaged: Any = KafkaError(KafkaError._BAD_MSG)
    whole = log({P0: 8}, p0=[1, 2])

    def answer(starts: dict[Partition, int]) -> Iterable[Message]:
        yield Message(None, None, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
        if P1 in starts:
            yield Message(P1, 3, damaged)
        yield from whole({partition: start for partition, start in starts.items() if partition == P0})

    assert found(Fake(answer), {P0: (0, 8), P1: (0, 8)}, 1) == {P0: 2, P1: 7}


def test_a_busy_partition_does_not_make_a_silent_one_wait_for_ever() -> None:
    busy = iter(range(100, 1_000_000))

    def answer(starts: dict[Partition, int]) -> Iterable[Message]:
        yield Message(P0, next(busy))

    assert found(Fake(answer), {P0: (0, 100), P1: (0, 8)}, 1) == {P0: 100, P1: 7}
