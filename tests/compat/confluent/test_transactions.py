"""librdkafka's transactions, by the first generation of the protocol: what is committed is seen, whole, once."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.compat.confluent.clients import READ_COMMITTED, READ_UNCOMMITTED, consumer, drain, read_all
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually

_LIMIT_S: Final = 20.0
_FENCED: Final = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


def producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    """A producer that is ready for its first transaction."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1, **settings})
    made.init_transactions(_LIMIT_S)
    return made


def send(writer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """Send and wait until the broker has all."""
    for value in values:
        writer.produce(topic, value.encode(), partition=partition, on_delivery=_refuse)
    assert writer.flush(_LIMIT_S) == 0


def _refuse(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The last stable offset."""
    reader = consumer(bootstrap, "unused", **READ_COMMITTED)
    try:
        found = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        assert found is not None
        return found[1]
    finally:
        reader.close()


def error_of(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    found: KafkaError = raised.value.args[0]
    return found


def test_what_was_aborted_is_not_read_by_who_wants_the_committed(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()
    writer = producer(bootstrap, new_name())
    for number in range(6):
        writer.begin_transaction()
        send(writer, topic, f"{number}a", f"{number}b")
        if number % 2:
            writer.abort_transaction(_LIMIT_S)
        else:
            writer.commit_transaction(_LIMIT_S)
    committed = read_all(bootstrap, topic, 6, **READ_COMMITTED)
    assert values(committed) == ["0a", "0b", "2a", "2b", "4a", "4b"]
    assert [message.offset() for message in committed] == [0, 1, 6, 7, 12, 13]  # a marker ends each transaction
    everything = read_all(bootstrap, topic, 12, **READ_UNCOMMITTED)
    assert values(everything) == [f"{number}{letter}" for number in range(6) for letter in "ab"]
    assert stable_end(bootstrap, topic) == 18


def test_an_open_transaction_holds_back_all_that_comes_after_it(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic()
    send(Producer({"bootstrap.servers": bootstrap}), topic, "before")
    writer = producer(bootstrap, new_name())
    writer.begin_transaction()
    send(writer, topic, "within")
    send(Producer({"bootstrap.servers": bootstrap}), topic, "after")
    assert stable_end(bootstrap, topic) == 1
    reader = consumer(bootstrap, "unused", **READ_COMMITTED)
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert values(drain(reader, 1)) == ["before"]
        assert reader.poll(1.0) is None
        writer.commit_transaction(_LIMIT_S)
        assert values(drain(reader, 2)) == ["within", "after"]
    finally:
        reader.close()


def test_a_transaction_over_topics_and_partitions(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    places = [(topic, partition) for topic in (new_topic(3), new_topic(2)) for partition in range(2)]
    writer = producer(bootstrap, new_name())
    for verdict in ("committed", "aborted", "last"):
        writer.begin_transaction()
        for topic, partition in places:
            send(writer, topic, verdict, partition=partition)
        assert {stable_end(bootstrap, *place) for place in places} == {
            {"committed": 0, "aborted": 2, "last": 4}[verdict]
        }
        if verdict == "aborted":
            writer.abort_transaction(_LIMIT_S)
        else:
            writer.commit_transaction(_LIMIT_S)
    for topic, partition in places:
        found = read_all(bootstrap, topic, 2, partition, **READ_COMMITTED)
        assert values(found) == ["committed", "last"]


def test_a_successor_fences_its_predecessor_and_aborts_what_it_left(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name = new_topic(), new_name()
    old = producer(bootstrap, name)
    old.begin_transaction()
    send(old, topic, "left behind")
    new = producer(bootstrap, name)
    eventually(lambda: stable_end(bootstrap, topic) == 2)  # the record, and the marker that aborts it
    new.begin_transaction()
    send(new, topic, "of the successor")
    error = error_of(lambda: old.commit_transaction(_LIMIT_S))
    assert error.fatal()
    assert error.code() in _FENCED, error
    new.commit_transaction(_LIMIT_S)
    found = read_all(bootstrap, topic, 1, **READ_COMMITTED)
    assert values(found) == ["of the successor"]


def test_a_fenced_producer_cannot_send(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, name = new_topic(), new_name()
    old = producer(bootstrap, name)
    producer(bootstrap, name)
    old.begin_transaction()
    old.produce(topic, b"late")
    assert error_of(lambda: old.commit_transaction(_LIMIT_S)).code() in _FENCED
    assert stable_end(bootstrap, topic) == 0


def test_a_transaction_that_outlives_its_timeout_is_aborted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name = new_topic(), new_name()
    writer = producer(bootstrap, name, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    writer.begin_transaction()
    send(writer, topic, "too slow")
    send(Producer({"bootstrap.servers": bootstrap}), topic, "after")
    assert values(read_all(bootstrap, topic, 1, **READ_COMMITTED)) == ["after"]
    assert error_of(lambda: writer.commit_transaction(_LIMIT_S)).code() in _FENCED
    again = producer(bootstrap, name)
    again.begin_transaction()
    send(again, topic, "again")
    again.commit_transaction(_LIMIT_S)
    assert values(read_all(bootstrap, topic, 2, **READ_COMMITTED)) == ["after", "again"]


def test_a_timeout_longer_than_the_broker_allows_is_refused(bootstrap: str, new_name: NewNameFactory) -> None:
    error = error_of(lambda: producer(bootstrap, new_name(), **{"transaction.timeout.ms": 900_001}))
    assert error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_goes_on_after_a_refused_record(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    writer = producer(bootstrap, new_name())
    writer.begin_transaction()
    send(writer, topic, "fine")
    failures: list[KafkaError | None] = []
    writer.produce(topic, b"x" * 20_000, on_delivery=lambda error, _: failures.append(error))
    writer.flush(_LIMIT_S)
    assert [error and error.code() for error in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert error_of(lambda: writer.commit_transaction(_LIMIT_S)).txn_requires_abort()
    writer.abort_transaction(_LIMIT_S)
    # librdkafka has counted the refused record, so the sequences of its next transaction have a gap; the broker refuses
    # it, and on its abort the client asks for a new epoch (KIP-360).
    writer.begin_transaction()
    writer.produce(topic, b"behind a gap")
    assert error_of(lambda: writer.commit_transaction(_LIMIT_S)).txn_requires_abort()
    writer.abort_transaction(_LIMIT_S)
    writer.begin_transaction()
    send(writer, topic, "with a new epoch")
    writer.commit_transaction(_LIMIT_S)
    found = read_all(bootstrap, topic, 1, **READ_COMMITTED)
    assert values(found) == ["with a new epoch"]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_aborted_batches_are_skipped_over_many_segments(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, codec: str
) -> None:
    """Two producers with transactions that overlap, of which every third is aborted, over segments of a megabyte."""
    topic = new_topic(**{"segment.bytes": str(1 << 20)})
    writers = [producer(bootstrap, new_name(), **{"compression.type": codec}) for _ in range(2)]
    filler = "".join(chr(33 + (number * number) % 89) for number in range(997))
    kept: list[str] = []
    for number in range(12):
        pieces = {
            writer: [f"{number}-{index}-{piece}-{filler}" for piece in range(200)]
            for index, writer in enumerate(writers)
        }
        for writer in writers:
            writer.begin_transaction()
        for writer, mine in pieces.items():
            send(writer, topic, *mine)
        for index, writer in enumerate(writers):
            if (number + index) % 3 == 0:
                writer.abort_transaction(_LIMIT_S)
            else:
                kept += pieces[writer]
                writer.commit_transaction(_LIMIT_S)
    found = read_all(bootstrap, topic, len(kept), **READ_COMMITTED)
    assert values(found) == kept
    everything = read_all(bootstrap, topic, 12 * 400, **READ_UNCOMMITTED)
    assert len(everything) == 12 * 400


@pytest.fixture
def member(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> Iterator[tuple[Consumer, str, str]]:
    """A member of a group that has read the ten records of its topic; with the topic and the group."""
    topic, group = new_topic(), new_name()
    send(Producer({"bootstrap.servers": bootstrap}), topic, *map(str, range(10)))
    reader = consumer(bootstrap, group, **READ_COMMITTED)
    reader.subscribe([topic])
    try:
        assert values(drain(reader, 10)) == list(map(str, range(10)))
        yield reader, topic, group
    finally:
        reader.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The group's committed offset; negative if there is none."""
    reader = consumer(bootstrap, group)
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=_LIMIT_S)
        assert found.error is None
        return found.offset
    finally:
        reader.close()


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, member: tuple[Consumer, str, str]
) -> None:
    reader, source, group = member
    sink = new_topic()
    writer = producer(bootstrap, new_name())
    for offset, verdict in ((4, "abort"), (6, "commit"), (8, "abort")):
        writer.begin_transaction()
        send(writer, sink, f"up to {offset}")
        place = TopicPartition(source, 0, offset)
        writer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), _LIMIT_S)
        if verdict == "commit":
            writer.commit_transaction(_LIMIT_S)
        else:
            writer.abort_transaction(_LIMIT_S)
        assert committed(bootstrap, group, source) == (-1001 if offset == 4 else 6)
    assert values(read_all(bootstrap, sink, 1, **READ_COMMITTED)) == ["up to 6"]


def test_offsets_of_an_open_transaction_are_waited_for(
    bootstrap: str, new_name: NewNameFactory, member: tuple[Consumer, str, str]
) -> None:
    reader, source, group = member
    writer = producer(bootstrap, new_name())
    writer.begin_transaction()
    place = TopicPartition(source, 0, 7)
    writer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), _LIMIT_S)
    other = consumer(bootstrap, group)
    try:
        error = error_of(lambda: other.committed([TopicPartition(source, 0)], timeout=1.0))
        assert error.code() == KafkaError._TIMED_OUT  # it asks again as long as it may
    finally:
        other.close()
    writer.commit_transaction(_LIMIT_S)
    assert committed(bootstrap, group, source) == 7


def test_offsets_of_a_member_that_was_left_behind_are_refused(
    bootstrap: str, new_name: NewNameFactory, member: tuple[Consumer, str, str]
) -> None:
    reader, source, group = member
    old = reader.consumer_group_metadata()
    other = consumer(bootstrap, group)
    writer = producer(bootstrap, new_name())
    try:
        other.subscribe([source])

        def rebalanced() -> bool:
            reader.poll(0.05)
            other.poll(0.05)
            now = reader.consumer_group_metadata()
            return bool(other.assignment() or reader.assignment()) and _generation(now) > _generation(old)

        eventually(rebalanced)
        writer.begin_transaction()
        place = TopicPartition(source, 0, 10)
        error = error_of(lambda: writer.send_offsets_to_transaction([place], old, _LIMIT_S))
        assert error.code() == KafkaError.ILLEGAL_GENERATION
        assert error.txn_requires_abort()
        writer.abort_transaction(_LIMIT_S)
    finally:
        other.close()
    assert committed(bootstrap, group, source) == -1001


def _generation(metadata: Any) -> int:
    """A member's generation, which librdkafka writes behind `CGMDv2:`."""
    return int.from_bytes(metadata[7:11], "little", signed=True)
