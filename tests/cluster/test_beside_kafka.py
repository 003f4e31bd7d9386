"""One cluster of genuine Kafka 3.9 and Ottla brokers: each is controller and leader in turn, topics move between them
under load, and nothing is lost."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages import alter_partition_reassignments as reassign
from tests.compat.cli.program import OttlaProgram
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine39 import GenuineKafka39
from tests.support.ottla_cluster import SETTINGS
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.steady_producer import SteadyProducer
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

KAFKA, OTTLA, SECOND_OTTLA = 1, 2, 3
PATIENCE_S = 90.0


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
        """Of each its leader, its replicas, and those in sync."""
        found = self.admin().list_topics(topic, timeout=20)
        return {
            number: (part.leader, tuple(part.replicas), set(part.isrs))
            for number, part in found.topics[topic].partitions.items()
        }

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        admin = self.admin()
        admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)])[topic].result(60)
        eventually(lambda: all(leader > 0 for leader, _, _ in self.partitions(topic).values()), timeout_s=PATIENCE_S)

    def until_in_sync(self, topic: str, *replicas: int) -> None:
        wanted = set(replicas)
        eventually(
            lambda: all(in_sync == wanted for _, _, in_sync in self.partitions(topic).values()), timeout_s=PATIENCE_S
        )

    def controller(self) -> int:
        def found() -> int:
            """0 while it is not known."""
            try:
                return max(int(self.admin().list_topics(timeout=5).controller_id), 0)
            except KafkaException:
                return 0

        return eventually(found, timeout_s=PATIENCE_S)

    def have_decide(self, number: int) -> None:
        """Restart brokers until this one is the controller."""
        while (controller := self.controller()) != number:
            self.brokers[controller].restart()
            eventually(lambda before=controller: self.controller() != before, timeout_s=PATIENCE_S)

    def move(self, topic: str, replicas: Mapping[int, list[int]]) -> None:
        """Have each partition moved, by whoever is the controller; returns when all are there, and led there."""
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

        eventually(there, timeout_s=PATIENCE_S)


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[MixedCluster]:
    with ExitStack() as stack:
        mixed = MixedCluster(f"{zookeeper.connect}/{uuid4()}")
        for number in (OTTLA, KAFKA):
            stack.enter_context(mixed.brokers[number])
        yield mixed


def check_nothing_lost(cluster: MixedCluster, topic: str, producer: SteadyProducer) -> None:
    """What was acknowledged is there, once."""
    assert producer.failed == []
    values = {value for _, value in producer.acknowledged}
    found = read_all(cluster.bootstrap, topic, len(values), patience_s=PATIENCE_S)
    assert values <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.timeout(300)
def test_a_topic_moves_to_ottla_under_load_and_back_whoever_decides(cluster: MixedCluster) -> None:
    cluster.create("moving", [[KAFKA], [KAFKA]])
    with SteadyProducer(cluster.bootstrap, "moving", **{"enable.idempotence": True}) as producer:
        producer.until_acknowledged(300)
        cluster.have_decide(OTTLA)
        cluster.move("moving", {0: [OTTLA], 1: [OTTLA]})
        producer.until_acknowledged(100)
        ottla = OttlaProgram(cluster.bootstrap)

        def seen() -> list[tuple[int, str, int]]:
            watched = ottla.json("cluster", "watch", "moving", "--once")
            return [(row["broker"], row["state"], row["leads"]) for row in watched["brokers"]]

        # by one broker sooner than by the other
        eventually(lambda: seen() == [(KAFKA, "up", 0), (OTTLA, "up", 2)])
        cluster.have_decide(KAFKA)
        producer.until_acknowledged(100)
        cluster.move("moving", {0: [KAFKA], 1: [KAFKA]})
        producer.until_acknowledged(100)
    check_nothing_lost(cluster, "moving", producer)


@pytest.mark.timeout(300)
def test_groups_and_transactions_go_on_when_a_coordinator_of_the_other_kind_takes_over(cluster: MixedCluster) -> None:
    """All that coordinators know moves from one broker to the other and back."""
    cluster.have_decide(OTTLA)  # which has to see that Kafka's broker makes a topic for transactions by itself
    cluster.create("c", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    member = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    member.subscribe(["c"])
    committed: list[bytes] = []
    aborted: list[bytes] = []
    read: list[bytes] = []

    def transact(name: str, *, commit: bool) -> None:
        values = [f"{name}-{number}".encode() for number in range(10)]
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("c", value, partition=number % 2)
        if commit:
            producer.commit_transaction(PATIENCE_S)
            committed.extend(values)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
            aborted.extend(values)

    def reads_all() -> bool:
        found = member.consume(100, timeout=0.5)
        read.extend(message.value() or b"" for message in found if not message.error())
        return len(read) >= len(committed)

    def commits() -> bool:
        try:
            member.commit(asynchronous=False)
        except KafkaException:  # the coordinator has just moved
            return False
        return True

    transact("first", commit=True)
    eventually(reads_all, timeout_s=PATIENCE_S, interval_s=0)
    eventually(commits, timeout_s=PATIENCE_S)
    for turn, coordinator in enumerate((OTTLA, KAFKA, OTTLA)):
        for topic in ("__consumer_offsets", "__transaction_state"):
            cluster.move(topic, {number: [coordinator] for number in cluster.partitions(topic)})
        transact(f"aborted {turn}", commit=False)
        transact(f"{turn}", commit=True)
        eventually(reads_all, timeout_s=PATIENCE_S, interval_s=0)
        eventually(commits, timeout_s=PATIENCE_S)
    member.close()
    assert sorted(read) == sorted(committed)  # each once: commits were found again, too
    positions = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    known = positions.committed([TopicPartition("c", 0), TopicPartition("c", 1)], timeout=PATIENCE_S)
    positions.close()
    ends = [at.offset for at in known]
    assert min(ends) > len(committed) // 2  # of both partitions, with markers and aborted records among them
    assert sorted(read_all(cluster.bootstrap, "c", len(committed))) == sorted(committed)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_replicates_to_and_from_the_other_whoever_is_the_controller(cluster: MixedCluster) -> None:
    cluster.create("t", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    ottla = OttlaProgram(cluster.bootstrap)
    with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
        producer.until_acknowledged(200)
        cluster.until_in_sync("t", KAFKA, OTTLA)
        for number, kill in ((OTTLA, False), (KAFKA, False), (OTTLA, True), (KAFKA, True)):
            cluster.have_decide(number)
            cluster.brokers[number].restart(kill=kill)  # the controller goes, and with it the leader of one partition
            producer.until_acknowledged(200)
            cluster.until_in_sync("t", KAFKA, OTTLA)
            ottla("cluster", "elect", "t")
            eventually(lambda: all(leader == held[0] for leader, held, _ in cluster.partitions("t").values()))
            watched = ottla.json("cluster", "watch", "t", "--once")
            assert watched["under_replicated"] == 0
            assert all(row["behind"] for row in watched["by_partition"])  # of each other's logs, they tell the end
    check_nothing_lost(cluster, "t", producer)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_replicated_topics_move_off_kafka_and_back_with_much_in_them(zookeeper: ZooKeeperServer) -> None:
    """Six partitions with two replicas: from Kafka and one Ottla to two Ottlas, and back."""
    cluster = MixedCluster(f"{zookeeper.connect}/{uuid4()}", ottlas=2)
    with ExitStack() as stack:
        for broker in cluster.brokers.values():
            stack.enter_context(broker)
        cluster.create("t", [[KAFKA, OTTLA], [OTTLA, KAFKA], [KAFKA, SECOND_OTTLA]] * 2)
        with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
            producer.until_acknowledged(2000)
            for decides, replicas in (
                (KAFKA, [OTTLA, SECOND_OTTLA]),
                (OTTLA, [KAFKA, SECOND_OTTLA]),
                (SECOND_OTTLA, [SECOND_OTTLA, OTTLA]),
                (KAFKA, [KAFKA, OTTLA]),
            ):
                cluster.have_decide(decides)
                cluster.move("t", dict.fromkeys(range(6), replicas))
                producer.until_acknowledged(500)
        check_nothing_lost(cluster, "t", producer)
