"""Reading topics in tests of connectors."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition


def messages_of(bootstrap: str, topic: str, at_least: int) -> list[Any]:
    """Committed messages that partition 0 had when this was called; [] if there are fewer than `at_least`, or no such
    topic yet."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reads-without-a-group",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    found: list[Any] = []
    try:
        partition = TopicPartition(topic, 0, 0)
        consumer.assign([partition])
        end = end_of(consumer, partition)
        while True:  # up to the end as it was: where a connector goes on writing, no end need ever be met
            message = consumer.poll(2.0)
            if message is None:
                break
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                return []
            if (message.offset() or 0) >= end:
                break
            found.append(message)
    finally:
        consumer.close()
    return found if len(found) >= at_least else []


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    try:
        offsets: tuple[int, int] | None = consumer.get_watermark_offsets(partition, timeout=2)
    except KafkaException:  # no such topic yet
        return 0
    return 0 if offsets is None else offsets[1]


def values_of(bootstrap: str, topic: str, at_least: int) -> list[bytes]:
    """The values of `messages_of`."""
    return [message.value() for message in messages_of(bootstrap, topic, at_least)]
