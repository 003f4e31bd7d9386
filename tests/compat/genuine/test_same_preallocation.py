"""`preallocate`: the same lengths of files, while the broker runs, after it was killed and after it has stopped."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

SEGMENT = 1 << 20
SETTINGS = {"log.preallocate": "true", "log.segment.bytes": str(SEGMENT)}


@pytest.fixture
def brokers() -> Iterator[list[BrokerProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(make(properties=SETTINGS)) for make in (GenuineKafka, OttlaProcess)]


def lengths(broker: BrokerProcess) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted((broker.log_dir / "t-0").glob("*.log"))}


def produce(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    now = int(time.time() * 1000)  # genuine Kafka deletes what is older than a week half a minute after its start
    for number in range(count):  # a batch each, of the same bytes
        producer.produce("t", bytes([number % 256]) * 100_000, timestamp=now + number)
        assert producer.flush(20) == 0


def read(broker: BrokerProcess, count: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = consumer.consume(count, timeout=20)
    consumer.close()
    assert [(message.value() or b"")[:1] for message in found] == [bytes([number % 256]) for number in range(count)]
    return len(found)


@pytest.mark.soak
def test_the_lengths_of_segments(brokers: list[BrokerProcess]) -> None:
    for broker in brokers:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        produce(broker, 14)
    genuine, ottla = map(lengths, brokers)
    assert ottla == genuine
    assert list(ottla.values())[-1] == SEGMENT, "the one that grows is preallocated"
    assert len(ottla) == 2
    for broker in brokers:
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        broker.start()
        assert read(broker, 14) == 14
    genuine, ottla = map(lengths, brokers)
    assert ottla == genuine
    for broker in brokers:
        broker.stop()
    genuine, ottla = map(lengths, brokers)
    assert ottla == genuine
