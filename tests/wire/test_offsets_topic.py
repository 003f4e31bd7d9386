"""`__consumer_offsets` as somebody else has made it."""

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker


def test_groups_work_on_an_offsets_topic_of_any_number_of_partitions(ottla_broker: Broker) -> None:
    servers: dict[str, Any] = {"bootstrap.servers": ottla_broker.bootstrap}
    admin = AdminClient(servers)
    topic = NewTopic("__consumer_offsets", 3, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["__consumer_offsets"].result(10)
    producer = Producer(servers)
    producer.produce("orders", b"one pear")
    assert producer.flush(10) == 0
    for group in ("kitchen", "billing", "shipping", "audit"):
        for position in (0, 1):  # the second consumer finds what the first has committed
            consumer = Consumer({**servers, "group.id": group, "auto.offset.reset": "earliest"})
            consumer.subscribe(["orders"])
            if position == 0:
                message = consumer.poll(10)
                assert message is not None
                assert message.value() == b"one pear"
                consumer.commit(asynchronous=False)
            else:
                assert consumer.poll(1.0) is None
            consumer.close()
