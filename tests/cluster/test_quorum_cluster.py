"""Three nodes of Ottla with their own controllers: a cluster without ZooKeeper."""

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.eventually import eventually
from tests.support.quorum_nodes import OttlaNode, ottla_nodes
from tests.support.steady_producer import SteadyProducer

SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Sequence[OttlaNode]]:
    with ottla_nodes(1, 2, 3, properties=SETTINGS) as started:
        yield started


def bootstrap(nodes: Sequence[OttlaNode]) -> str:
    return ",".join(node.bootstrap for node in nodes)


def create(nodes: Sequence[OttlaNode], name: str) -> None:
    """By a client of its own: one that knows only a node that is gone looks for no other for minutes."""
    admin = AdminClient({"bootstrap.servers": bootstrap(nodes), "log_level": 0})
    admin.create_topics([NewTopic(name, 3, 3, config={"min.insync.replicas": "2"})])[name].result(20)


def read_all(nodes: Sequence[OttlaNode], topic: str, count: int) -> set[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap(nodes), "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: set[bytes] = set()
    try:
        eventually(lambda: _take(consumer, found) >= count, timeout_s=60)
    finally:
        consumer.close()
    return found


def _take(consumer: Consumer, found: set[bytes]) -> int:
    for message in consumer.consume(500, 0.2):
        if message.error() is None:
            value = message.value()
            assert value is not None
            found.add(value)
    return len(found)


@pytest.mark.parametrize("turns", [1, pytest.param(6, marks=pytest.mark.soak)])
def test_nodes_are_killed_and_stopped_in_turn_and_nothing_acknowledged_is_lost(
    nodes: Sequence[OttlaNode], turns: int
) -> None:
    topic = f"steady-{turns}"
    create(nodes, topic)
    with SteadyProducer(bootstrap(nodes), topic, **{"enable.idempotence": True}) as producer:
        producer.until_acknowledged(20)
        for turn in range(turns):
            node = nodes[turn % len(nodes)]
            if turn % 2:
                node.stop()
            else:
                node.kill()
            create([each for each in nodes if each is not node], f"made-in-{turns}-{turn}")
            producer.until_acknowledged(20)
            node.start()
            eventually(lambda: _all_in_sync(nodes, topic), timeout_s=60)
        producer.until_acknowledged(20)
    assert producer.failed == []
    acknowledged = {value for _, value in producer.acknowledged}
    assert read_all(nodes, topic, len(acknowledged)) >= acknowledged


def _all_in_sync(nodes: Sequence[OttlaNode], topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap(nodes), "log_level": 0})
    partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    return all(len(partition.isrs) == 3 for partition in partitions)
