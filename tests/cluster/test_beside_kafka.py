"""One cluster of genuine Kafka 3.9 and Ottla brokers: each is controller and leader in turn, with nothing lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.eventually import eventually
from tests.support.genuine39 import GenuineKafka39
from tests.support.ottla_cluster import SETTINGS
from tests.support.ottla_process import OttlaProcess
from tests.support.steady_producer import SteadyProducer, read_all
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.soak

KAFKA, OTTLA = 1, 2


class MixedCluster:
    """A genuine broker, number 1, and an Ottla one, number 2."""

    def __init__(self, connect: str) -> None:
        settings = {**SETTINGS, "default.replication.factor": "2", "zookeeper.session.timeout.ms": "6000"}
        settings |= {"offsets.topic.replication.factor": "2", "min.insync.replicas": "1"}
        genuine = {name: value for name, value in settings.items() if not name.startswith("share.")}
        self.kafka = GenuineKafka39(connect, properties={**genuine, "broker.id": str(KAFKA)})
        self.ottla = OttlaProcess(properties={**settings, "node.id": str(OTTLA), "zookeeper.connect": connect})

    @property
    def bootstrap(self) -> str:
        return f"{self.ottla.bootstrap},{self.kafka.bootstrap}"

    def partitions(self, topic: str) -> dict[int, tuple[int, tuple[int, ...], set[int]]]:
        found = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(topic, timeout=20)
        return {
            number: (part.leader, tuple(part.replicas), set(part.isrs))
            for number, part in found.topics[topic].partitions.items()
        }

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)])[topic].result(60)
        eventually(lambda: all(leader > 0 for leader, _, _ in self.partitions(topic).values()), timeout_s=60)


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.mark.timeout(600)
def test_each_replicates_to_and_from_the_other_whoever_is_the_controller(zookeeper: ZooKeeperServer) -> None:
    cluster = MixedCluster(f"{zookeeper.connect}/{uuid4()}")
    order = [cluster.ottla, cluster.kafka]
    with ExitStack() as stack:
        for broker in order:
            stack.enter_context(broker)
        cluster.create("t", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
        with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
            producer.until_acknowledged(200)
            eventually(
                lambda: all(in_sync == {KAFKA, OTTLA} for _, _, in_sync in cluster.partitions("t").values()),
                timeout_s=60,
            )
            order[0].restart()  # the controller goes, and with it the leader of one partition
            producer.until_acknowledged(200)
            eventually(
                lambda: all(in_sync == {KAFKA, OTTLA} for _, _, in_sync in cluster.partitions("t").values()),
                timeout_s=60,
            )
            order[1].restart()
            producer.until_acknowledged(200)
        assert producer.failed == []
        values = {value for _, value in producer.acknowledged}
        found = read_all(cluster.bootstrap, "t", len(values))
        assert values <= set(found)
        assert len(found) == len(set(found))
