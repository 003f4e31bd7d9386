"""Reading topics in tests of connectors."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


def messages_of(bootstrap: str, topic: str, at_least: int) -> list[Any]:
    """Committed messages of partition 0; [] if there are fewer than `at_least`, or no such topic yet."""
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
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(2.0)
            if message is None:
                break
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                return []
            found.append(message)
    finally:
        consumer.close()
    return found if len(found) >= at_least else []


def values_of(bootstrap: str, topic: str, at_least: int) -> list[bytes]:
    """The values of `messages_of`."""
    return [message.value() for message in messages_of(bootstrap, topic, at_least)]
