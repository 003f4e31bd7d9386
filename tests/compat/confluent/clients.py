"""Short ways to librdkafka's producer and consumer as these tests use them."""

import time
from collections.abc import Sequence
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.compat.samples import Sample


def produce(bootstrap: str, topic: str, records: Sequence[Sample], partition: int = 0, **settings: Any) -> list[int]:
    """Produce and flush; the offsets in order of delivery reports.

    Raises:
        KafkaException: the first delivery that failed.
    """
    offsets: list[int] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            offset = message.offset()
            offsets.append(-1 if offset is None else offset)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=partition,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    if failures:
        raise KafkaException(failures[0])
    return offsets


def numbered(count: int) -> list[Sample]:
    """`count` records whose values are their numbers and whose timestamps are 1,000,000 + number."""
    return [Sample(None, str(number).encode(), (), 1_000_000 + number) for number in range(count)]


def consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    """A consumer that starts at the beginning and commits only when told.

    One of the protocol of KIP-848 has no timeouts of its own: the broker's hold.
    """
    timeouts = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({} if settings.get("group.protocol") == "consumer" else timeouts),
            **settings,
        }
    )


def drain(reader: Consumer, count: int, timeout_s: float = 60.0) -> list[Message]:
    """Poll until `count` messages have come.

    Raises:
        KafkaException: a message was an error.
        AssertionError: fewer came within `timeout_s`.
    """
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages within {timeout_s} s"
        message = reader.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        messages.append(message)
    return messages


READ_COMMITTED: Final[dict[str, Any]] = {"isolation.level": "read_committed"}
READ_UNCOMMITTED: Final[dict[str, Any]] = {"isolation.level": "read_uncommitted"}


def read_all(bootstrap: str, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Message]:
    """The first `count` messages of a partition, without a group."""
    reader = consumer(bootstrap, "unused", **settings)
    try:
        reader.assign([TopicPartition(topic, partition, 0)])
        return drain(reader, count)
    finally:
        reader.close()


def as_sample(message: Message) -> Sample:
    """What came back, in the shape of what was sent."""
    headers = cast(list[tuple[str, bytes | str | None]], message.headers() or [])
    return Sample(
        message.key(),
        message.value(),
        tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers),
        message.timestamp()[1],
    )
