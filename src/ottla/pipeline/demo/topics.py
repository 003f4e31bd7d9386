"""The demo's topics: made, filled with the data set, and read back by a plain client."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipeline.demo.dataset import Record
from ottla.pipeline.errors import PipelineError
from ottla.waiting import tries

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_ANSWER_WITHIN_S: Final = 10.0


class TopicsError(PipelineError):
    """A topic could not be made, filled or read."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was written to a topic: records, bytes of their values, seconds until all were acknowledged."""

    records: int
    value_bytes: int
    seconds: float


def reach(bootstrap: str) -> None:
    """Raises TopicsError if no broker answers."""
    try:
        AdminClient(_client(bootstrap)).list_topics(timeout=_ANSWER_WITHIN_S)
    except KafkaException as error:
        raise TopicsError(f"no broker answers at {bootstrap} ({error.args[0].str()})") from error


def recreate(bootstrap: str, wanted: Iterable[NewTopic]) -> None:
    """Delete the topics that are there, and make all of them anew. Raises TopicsError."""
    topics = {topic.topic: topic for topic in wanted}
    admin = AdminClient(_client(bootstrap))
    try:
        present = admin.list_topics(timeout=_TIMEOUT_S).topics.keys() & topics.keys()
        if present:
            for deleted in admin.delete_topics(list(present), operation_timeout=_TIMEOUT_S).values():
                deleted.result()
        for name, topic in topics.items():
            _create(admin, name, topic)
    except KafkaException as error:
        raise TopicsError(f"the topics could not be made at {bootstrap}: {error.args[0].str()}") from error


def kept(name: str, partitions: int = 4) -> NewTopic:
    """A topic whose records stay."""
    return NewTopic(name, partitions, config={"retention.ms": "-1"})


def compacted(name: str, partitions: int = 1) -> NewTopic:
    """A topic that keeps the newest record of each key."""
    return NewTopic(name, partitions, config={"cleanup.policy": "compact"})


def _create(admin: AdminClient, name: str, topic: NewTopic) -> None:
    """Create it, patiently: a topic just deleted may still be on its way out."""
    for _ in tries(_TIMEOUT_S, every_s=0.1):
        try:
            admin.create_topics([topic], operation_timeout=_TIMEOUT_S)[name].result()
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            problem = error
    raise problem


def produce(
    bootstrap: str, topic: str, batches: Iterable[list[Record]], progress: Callable[[int], None] | None = None
) -> Sent:
    """Send records, placed by the murmur2 of their keys as the Java client does, and wait until all are acknowledged.

    `progress` is called with the number of acknowledged records. Raises TopicsError with the first record that was
    refused.
    """
    producer = Producer(
        {
            **_client(bootstrap),
            "partitioner": "murmur2_random",
            "enable.idempotence": True,  # and with it acks=all
            "linger.ms": 20,
            "compression.type": "lz4",
            "delivery.report.only.error": True,
        }
    )
    refused: list[str] = []

    def on_error(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error.str())

    count = value_bytes = 0
    started = time.monotonic()
    for batch in batches:
        for key, value in batch:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=on_error)
                    break
                except BufferError:
                    producer.poll(0.05)  # the queue is full: let the broker catch up
            value_bytes += len(value)
        count += len(batch)
        producer.poll(0)
        if progress is not None:
            progress(count - len(producer))
    while producer.flush(0.2) and not refused:
        if progress is not None:
            progress(count - len(producer))
    if refused:
        raise TopicsError(f"{len(refused)} records for topic '{topic}' were refused: {refused[0]}")
    if progress is not None:
        progress(count)
    return Sent(count, value_bytes, time.monotonic() - started)


def count(bootstrap: str, topic: str) -> int:
    """Records in the topic, by its offsets."""
    with _reader(bootstrap) as consumer:
        return sum(last - first for first, last in _bounds(consumer, topic).values())


def newest_by_key(bootstrap: str, topic: str) -> tuple[dict[str, dict[str, Any]], int]:
    """The content of a compacted topic: the newest JSON value of each key, and the number of records read.

    Raises TopicsError if reading stalls.
    """
    newest: dict[str, dict[str, Any]] = {}
    read = 0
    for message in records(bootstrap, topic):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        newest[key.decode()] = json.loads(value)
        read += 1
    return newest, read


def records(bootstrap: str, topic: str) -> Iterator[Message]:
    """All records that the topic holds now. Raises TopicsError if reading stalls."""
    with _reader(bootstrap) as consumer:
        bounds = _bounds(consumer, topic)
        consumer.assign([TopicPartition(topic, number, first) for number, (first, _) in bounds.items()])
        unfinished = {number for number, (first, last) in bounds.items() if first < last}
        deadline = time.monotonic() + _TIMEOUT_S
        while unfinished:
            if time.monotonic() > deadline:
                raise TopicsError(f"topic '{topic}' could not be read to its end within {_TIMEOUT_S:.0f} s")
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition() or 0)


def headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a record; empty if it has none."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    try:
        description = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if description.error is not None:
            raise TopicsError(f"topic '{topic}': {description.error.str()}")
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_TIMEOUT_S)
            for number in description.partitions
        }
    except KafkaException as error:
        raise TopicsError(f"topic '{topic}' could not be looked up: {error.args[0].str()}") from error


def _reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            **_client(bootstrap),
            "group.id": "ottla-demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )


def _client(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "logger": log}
