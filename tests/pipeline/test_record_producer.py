"""Records that cannot be written, and brokers that go away: what the sink's tasks say. Without Spark."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.spark import SourceError, UnknownTopicError
from ottla.spark.exactly_once import Outcome, StreamTask, write_once
from ottla.spark.marks import Write
from ottla.spark.produce import RecordProducer
from tests.pipeline.conftest import TopicFactory
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess


def rows(**columns: list[object]) -> Iterator[pa.RecordBatch]:
    types = {"partition": pa.int32(), "value": pa.binary(), "topic": pa.string()}
    yield pa.record_batch({name: pa.array(values, types[name]) for name, values in columns.items()})


@pytest.fixture
def producer(bootstrap: str) -> RecordProducer:
    return RecordProducer({"bootstrap.servers": bootstrap})


def test_a_partition_that_is_not_there_is_named(producer: RecordProducer, new_topic: TopicFactory) -> None:
    topic = new_topic(2)
    assert producer.write(rows(value=[b"known"]), topic.name) == 1
    with pytest.raises(SourceError, match=f"topic '{topic.name}' has no partition 7, which a row asks for"):
        producer.write(rows(value=[b"1"], partition=[7]), topic.name)


def test_a_row_without_a_topic_is_refused(producer: RecordProducer, new_topic: TopicFactory) -> None:
    with pytest.raises(SourceError, match="a row has no topic: its column 'topic' is null"):
        producer.write(rows(value=[b"1", b"2"], topic=[new_topic().name, None]), None)


def test_a_topic_that_is_not_there_is_named(producer: RecordProducer) -> None:
    with pytest.raises((SourceError, UnknownTopicError), match="nowhere"):
        producer.write(rows(value=[b"1"], topic=["nowhere"]), None)


def test_a_record_above_the_limit_of_the_client_is_named(producer: RecordProducer, new_topic: TopicFactory) -> None:
    with pytest.raises(SourceError, match=r"too large: its value has 2000000 bytes.*kafka\.message\.max\.bytes"):
        producer.write(rows(value=[b"x" * 2_000_000]), new_topic().name)


def test_more_than_fits_into_memory_is_written_in_order(new_topic: TopicFactory) -> None:
    topic = new_topic()
    producer = RecordProducer({"bootstrap.servers": topic.bootstrap, "queue.buffering.max.messages": "100"})
    assert producer.write(rows(value=[str(number).encode() for number in range(2_000)]), topic.name) == 2_000
    assert [int(message.value() or b"") for message in topic.messages()] == list(range(2_000))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [OttlaProcess, pytest.param(GenuineKafka, marks=pytest.mark.soak)])
def test_a_broker_that_goes_away_in_a_transaction_is_waited_for(
    tmp_path: Path, kind: type[OttlaProcess] | type[GenuineKafka]
) -> None:
    with kind(tmp_path / "broker") as broker:
        topic = TopicFactory(broker.bootstrap)()
        client = (("bootstrap.servers", broker.bootstrap),)

        def interrupted() -> Iterator[pa.RecordBatch]:
            yield from rows(value=[b"before"])
            time.sleep(0.2)  # so that it has been sent
            broker.kill()
            threading.Timer(1.0, broker.start).start()
            yield from rows(value=[b"after"])

        task = StreamTask("query", 0, 0, Write("run", "write"))
        assert write_once(client, topic.name, task, interrupted()) == Outcome(2)
        assert write_once(client, topic.name, task, rows(value=[b"before", b"after"])) == Outcome(2, repeated=True)
        assert [message.value() for message in topic.messages()] == [b"before", b"after"]
