"""Acknowledged records are visible to the next request, with acks=1 too, however slow the disk."""

from collections.abc import Iterator

import pytest
from tests.support.raw_client import RawConnection
from tests.support.stories import Teller, batch, fetch, list_offsets, produce

from ottla.errors import ErrorCode
from ottla.testing import Broker

TOPIC = "seen"
ROUNDS = 40
LATEST, LARGEST_TIMESTAMP = -1, -3


@pytest.fixture
def asked() -> Iterator[tuple[RawConnection, RawConnection]]:
    """A producer's connection and a consumer's."""
    with (
        Broker(config={"num.partitions": "1"}) as broker,
        RawConnection(broker.bootstrap) as producer,
        RawConnection(broker.bootstrap) as consumer,
    ):
        Teller(broker.bootstrap).create(TOPIC)
        yield producer, consumer


def append(connection: RawConnection, number: int, acks: int = 1) -> None:
    (topic,) = connection.ask(produce([(TOPIC, 0, batch(b"%d" % number))], acks=acks), 9).responses
    (answer,) = topic.partition_responses
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)


@pytest.mark.parametrize("time", [LATEST, LARGEST_TIMESTAMP, 0])
def test_the_end_is_known_at_once(asked: tuple[RawConnection, RawConnection], time: int) -> None:
    producer, consumer = asked
    for number in range(ROUNDS):
        append(producer, number)
        (topic,) = consumer.ask(list_offsets([(TOPIC, 0, time)]), 7).topics
        found = topic.partitions[0].offset
        assert found == (number + 1 if time == LATEST else 0)  # all records have the same time


@pytest.mark.parametrize("max_wait_ms", [0, 1, 500])
def test_the_record_is_read_at_once(asked: tuple[RawConnection, RawConnection], max_wait_ms: int) -> None:
    producer, consumer = asked
    for number in range(ROUNDS):
        append(producer, number)
        answer = consumer.ask(fetch([(TOPIC, 0, number)], max_wait_ms=max_wait_ms), 12)
        assert answer.responses[0].partitions[0].records


def test_who_asks_for_more_than_there_is_is_answered_when_his_time_is_up(
    asked: tuple[RawConnection, RawConnection],
) -> None:
    producer, consumer = asked
    append(producer, 0)
    answer = consumer.ask(fetch([(TOPIC, 0, 0)], max_wait_ms=0, min_bytes=1 << 20), 12)
    assert answer.responses[0].partitions[0].records
    nothing = consumer.ask(fetch([(TOPIC, 0, 1)], max_wait_ms=0), 12)
    assert not nothing.responses[0].partitions[0].records
