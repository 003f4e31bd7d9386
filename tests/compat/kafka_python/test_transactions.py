"""kafka-python's transactions: the protocol's first generation once more, by a third implementation."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, InvalidProducerEpochError, KafkaError, ProducerFencedError
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually

TIMEOUT_MS = 1_000
"""How long a poll in a group may take. This client (3.0.12) forgets a rebalance that the end of a poll cuts short: it
is then not in the group, and does not join again."""


@contextlib.contextmanager
def producer(bootstrap: str, transactional_id: str | None, **settings: Any) -> Iterator[KafkaProducer]:
    """A producer, ready for its first transaction if it has an id."""
    made = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **settings)
    try:
        if transactional_id is not None:
            made.init_transactions()
        yield made
    finally:
        made.close(timeout=5)


def send(writer: KafkaProducer, topic: str, *values: str) -> None:
    for future in [writer.send(topic, value.encode()) for value in values]:
        future.get(20)


@contextlib.contextmanager
def consumer(
    bootstrap: str, *topics: str, group: str | None = None, isolation: str = "read_committed"
) -> Iterator[KafkaConsumer]:
    made = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=6000,
        metadata_max_age_ms=1000,  # a refresh that this client cancels by itself is made up for after that
    )
    try:
        yield made
    finally:
        made.close()


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything in the first partition up to its end, as it is now."""
    place = TopicPartition(topic, 0)
    found: list[str] = []
    with consumer(bootstrap, isolation=isolation) as reader:
        reader.assign([place])
        reader.seek_to_beginning(place)
        end = reader.end_offsets([place])[place]
        while reader.position(place) < end:
            found += [record.value.decode() for record in reader.poll(timeout_ms=200).get(place, [])]
    return found


def test_what_was_aborted_is_not_read(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic = new_topic()
    with producer(bootstrap, new_name()) as writer:
        for number in range(6):
            writer.begin_transaction()
            send(writer, topic, f"{number}a", f"{number}b")
            if number % 2:
                writer.abort_transaction()
            else:
                writer.commit_transaction()
    eventually(lambda: read(bootstrap, topic) == ["0a", "0b", "2a", "2b", "4a", "4b"])  # the last marker comes later
    assert read(bootstrap, topic, "read_uncommitted") == [f"{number}{letter}" for number in range(6) for letter in "ab"]


def test_an_open_transaction_is_not_read(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic = new_topic()
    with producer(bootstrap, new_name()) as writer, producer(bootstrap, None) as plain:
        writer.begin_transaction()
        send(writer, topic, "within")
        send(plain, topic, "after")
        assert read(bootstrap, topic) == []
        writer.commit_transaction()
        eventually(lambda: read(bootstrap, topic) == ["within", "after"])


def test_a_successor_fences_its_predecessor(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name = new_topic(), new_name()
    with producer(bootstrap, name) as old:
        old.begin_transaction()
        send(old, topic, "left behind")
        with producer(bootstrap, name) as new:
            new.begin_transaction()
            send(new, topic, "of the successor")
            new.commit_transaction()
            with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
                old.commit_transaction()
    eventually(lambda: read(bootstrap, topic) == ["of the successor"])


def test_a_transaction_that_outlives_its_timeout_is_aborted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()
    with producer(bootstrap, new_name(), transaction_timeout_ms=1000) as writer:
        writer.begin_transaction()
        send(writer, topic, "too slow")
        place = TopicPartition(topic, 0)
        with consumer(bootstrap) as reader:
            eventually(lambda: reader.end_offsets([place])[place] == 2)  # the record and the marker that aborts it
        with pytest.raises(KafkaError):
            writer.commit_transaction()
    assert read(bootstrap, topic) == []


def test_consume_transform_produce(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    source, sink, group = new_topic(), new_topic(), new_name()
    place = TopicPartition(source, 0)
    with producer(bootstrap, None) as plain:
        send(plain, source, *map(str, range(12)))

    def offset() -> int | None:
        with consumer(bootstrap, group=group) as other:
            return other.committed(place)

    with producer(bootstrap, new_name()) as writer, consumer(bootstrap, source, group=group) as reader:
        seen = 0
        while seen < 12:
            for record in reader.poll(timeout_ms=TIMEOUT_MS, max_records=1).get(place, []):
                writer.begin_transaction()
                send(writer, sink, f"{record.value.decode()}!")
                after = OffsetAndMetadata(record.offset + 1, f"after {seen}", -1)
                writer.send_offsets_to_transaction({place: after}, reader.group_metadata())
                if seen % 3 == 1:
                    writer.abort_transaction()
                    assert offset() == seen
                else:
                    writer.commit_transaction()
                seen += 1
    eventually(lambda: read(bootstrap, sink) == [f"{number}!" for number in range(12) if number % 3 != 1])
    assert offset() == 12


def test_offsets_of_a_member_that_was_left_behind_are_refused(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    source, group = new_topic(), new_name()
    place = TopicPartition(source, 0)
    with producer(bootstrap, new_name()) as writer:
        with consumer(bootstrap, source, group=group) as reader:
            eventually(lambda: reader.poll(timeout_ms=TIMEOUT_MS) or reader.assignment())
            old = reader.group_metadata()
        with consumer(bootstrap, source, group=group) as successor:
            eventually(lambda: successor.poll(timeout_ms=TIMEOUT_MS) or successor.assignment())
            writer.begin_transaction()
            with pytest.raises(CommitFailedError):
                writer.send_offsets_to_transaction({place: OffsetAndMetadata(5, "", -1)}, old)
            writer.abort_transaction()
            assert successor.committed(place) is None
