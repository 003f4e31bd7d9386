"""Reading topics in tests of connectors."""

from confluent_kafka import Consumer, KafkaError, TopicPartition


def values_of(bootstrap: str, topic: str, at_least: int) -> list[bytes]:
    """Values of partition 0, committed ones only; [] if there are fewer than `at_least`."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reads-without-a-group",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    found: list[bytes] = []
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
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
    finally:
        consumer.close()
    return found if len(found) >= at_least else []
