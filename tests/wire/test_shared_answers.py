"""Consumers that wait at the same place of a partition get the same records, which are read once for all of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest
from tests.support.raw_client import RawConnection
from tests.support.stories import Teller, batch, fetch, produce

from ottla.errors import ErrorCode
from ottla.log.partition_log import PartitionLog
from ottla.server import fetch_attempt
from ottla.server.handlers import fetch as fetch_handler
from ottla.testing import Broker

TOPIC = "shared"
CONSUMERS = 20
VERSION = 12


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"num.partitions": "1"}) as broker:
        Teller(broker.bootstrap).create(TOPIC)
        yield broker


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that are read from logs."""
    offsets: list[int] = []
    read = PartitionLog.read

    def counted(log: PartitionLog, offset: int, *given: Any, **named: Any) -> Any:
        offsets.append(offset)
        return read(log, offset, *given, **named)

    monkeypatch.setattr(PartitionLog, "read", counted)
    return offsets


class Consumer:
    """Waits at the end of the partition, in a session of its own."""

    def __init__(self, connection: RawConnection, **settings: Any) -> None:
        self._connection = connection
        self._settings = settings
        opened = connection.ask(fetch([(TOPIC, 0, 0)], session=(0, 0), **settings), VERSION)
        self.session_id = opened.session_id
        self._epoch = 0

    def wait_at(self, offset: int, max_wait_ms: int = 20_000) -> None:
        self._epoch += 1
        session = (self.session_id, self._epoch)
        self._waiting = fetch([(TOPIC, 0, offset)], max_wait_ms=max_wait_ms, session=session, **self._settings)
        self._connection.send(self._waiting, VERSION)

    def answer(self) -> Any:
        answer = self._connection.receive(self._waiting, VERSION)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, self.session_id)
        return answer

    def records(self) -> bytes:
        (topic,) = self.answer().responses
        (partition,) = topic.partitions
        assert partition.error_code == ErrorCode.NONE
        return bytes(partition.records)


def append(broker: Broker, number: int, value: bytes = b"") -> None:
    with RawConnection(broker.bootstrap) as producer:
        (topic,) = producer.ask(produce([(TOPIC, 0, batch(value or b"%d" % number))], acks=-1), 9).responses
        assert topic.partition_responses[0].base_offset == number


def until_all_wait(broker: Broker) -> None:
    """Ask on a new connection, which is accepted after the requests that are there have been handled."""
    with RawConnection(broker.bootstrap) as last:
        last.ask(fetch([(TOPIC, 0, 0)], max_wait_ms=0), VERSION)


def test_the_records_are_read_once_for_all_that_wait(broker: Broker, reads: list[int]) -> None:
    with ExitStack() as stack:
        consumers = [Consumer(stack.enter_context(RawConnection(broker.bootstrap))) for _ in range(CONSUMERS)]
        for number in range(3):
            for consumer in consumers:
                consumer.wait_at(number)
            until_all_wait(broker)
            append(broker, number)
            found = {consumer.records() for consumer in consumers}
            assert len(found) == 1
            assert b"%d" % number in found.pop()
            assert reads.count(number) < CONSUMERS / 2


def test_who_waits_on_other_terms_gets_what_it_asked_for(broker: Broker) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(4)]
        append(broker, 0, b"x" * 100)
        one, other = Consumer(connections[0]), Consumer(connections[1])
        patient = Consumer(connections[2], min_bytes=300)
        committed = Consumer(connections[3], isolation_level=1)
        for consumer in (one, other, patient, committed):
            consumer.wait_at(1)
        until_all_wait(broker)
        append(broker, 1, b"y" * 100)
        assert one.records() == other.records() == committed.records()
        append(broker, 2, b"z" * 100)
        both = patient.records()
        assert b"y" * 100 in both
        assert b"z" * 100 in both


def test_a_fetch_in_which_nothing_has_happened_looks_at_no_partition_when_its_time_is_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    attempt = cast(Any, fetch_handler).FetchAttempt

    def counted(*given: Any, **named: Any) -> Any:
        attempts.append(1)
        return attempt(*given, **named)

    append(broker, 0)
    with RawConnection(broker.bootstrap) as connection:
        consumer = Consumer(connection)
        consumer.wait_at(0)
        consumer.records()
        monkeypatch.setattr(fetch_handler, "FetchAttempt", counted)
        for _ in range(3):
            consumer.wait_at(1, max_wait_ms=20)
            assert consumer.answer().responses == []
        assert len(attempts) == 3


def test_a_fetch_whose_partitions_change_all_the_time_is_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of many partitions, looked at in slices."""
    monkeypatch.setattr(fetch_attempt, "MANY", 0)
    monkeypatch.setattr(fetch_attempt, "mark_of", lambda partition: object())
    with RawConnection(broker.bootstrap, timeout_s=30) as connection:
        answer = connection.ask(fetch([(TOPIC, 0, 0)], max_wait_ms=100), VERSION)
        assert [partition.error_code for topic in answer.responses for partition in topic.partitions] == [0]
