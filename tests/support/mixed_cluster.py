"""A cluster of a genuine Kafka 3.9 broker and Ottla brokers, on one ZooKeeper."""

from collections.abc import Mapping
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages import alter_partition_reassignments as reassign
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.evidence import check_exactly_once
from tests.support.genuine39 import GenuineKafka39
from tests.support.ottla_cluster import SETTINGS
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.steady_producer import SteadyProducer

KAFKA, OTTLA, SECOND_OTTLA = 1, 2, 3
TIMEOUT_S = 90.0


class MixedCluster:
    """A genuine broker, number 1, and Ottla ones, number 2 and up."""

    def __init__(self, connect: str, ottlas: int = 1) -> None:
        settings = {**SETTINGS, "default.replication.factor": "2", "zookeeper.session.timeout.ms": "6000"}
        settings |= {"offsets.topic.replication.factor": "2", "min.insync.replicas": "1"}
        settings |= {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1"}
        settings |= {"controlled.shutdown.max.retries": "1"}
        genuine = {name: value for name, value in settings.items() if not name.startswith("share.")}
        kafka = GenuineKafka39(connect, properties={**genuine, "broker.id": str(KAFKA)})
        own = {**settings, "zookeeper.connect": connect}
        self.brokers: Mapping[int, BrokerProcess] = {
            KAFKA: kafka,
            **{
                number: OttlaProcess(properties={**own, "node.id": str(number)})
                for number in range(OTTLA, OTTLA + ottlas)
            },
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def partitions(self, topic: str) -> dict[int, tuple[int, tuple[int, ...], set[int]]]:
        """The leader of each partition, its replicas, and those in sync."""
        found = self.admin().list_topics(topic, timeout=20)
        return {
            number: (part.leader, tuple(part.replicas), set(part.isrs))
            for number, part in found.topics[topic].partitions.items()
        }

    def create(self, topic: str, replicas: list[list[int]], **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=named)
        admin = self.admin()  # its requests end with it
        admin.create_topics([new])[topic].result(60)
        eventually(lambda: all(leader > 0 for leader, _, _ in self.partitions(topic).values()), timeout_s=TIMEOUT_S)

    def until_in_sync(self, topic: str, *replicas: int) -> None:
        wanted = set(replicas)
        eventually(
            lambda: all(in_sync == wanted for _, _, in_sync in self.partitions(topic).values()), timeout_s=TIMEOUT_S
        )

    def controller(self) -> int:
        def found() -> int:
            """0 while it is not known."""
            try:
                return max(int(self.admin().list_topics(timeout=5).controller_id), 0)
            except KafkaException:
                return 0

        return eventually(found, timeout_s=TIMEOUT_S)

    def have_decide(self, number: int) -> None:
        """Restart brokers until this one is the controller."""
        while (controller := self.controller()) != number:
            self.brokers[controller].restart()
            eventually(partial(self._is_replaced, controller), timeout_s=TIMEOUT_S)

    def _is_replaced(self, controller: int) -> bool:
        return self.controller() != controller

    def move(self, topic: str, replicas: Mapping[int, list[int]]) -> None:
        """Have each partition moved, by the controller of the moment; returns when all are there, and led there."""
        parts = [
            reassign.ReassignablePartition(partition_index=number, replicas=wanted)
            for number, wanted in replicas.items()
        ]
        request = reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name=topic, partitions=parts)]
        )
        answer = ask(self.brokers[self.controller()].bootstrap, request, 0)
        assert [part.error_code for result in answer.responses for part in result.partitions] == [0] * len(parts)

        def there() -> bool:
            return all(
                (held, in_sync, leader in wanted) == (tuple(wanted), set(wanted), True)
                for wanted, (leader, held, in_sync) in (
                    (replicas[number], part) for number, part in self.partitions(topic).items() if number in replicas
                )
            )

        eventually(there, timeout_s=TIMEOUT_S)


def check_nothing_lost(cluster: MixedCluster, topic: str, producer: SteadyProducer) -> None:
    """What was acknowledged is there, once."""
    assert producer.failed == []
    values = {value for _, value in producer.acknowledged}
    log_dirs = {number: broker.log_dir for number, broker in cluster.brokers.items()}
    check_exactly_once(cluster.bootstrap, topic, values, log_dirs, timeout_s=TIMEOUT_S)
