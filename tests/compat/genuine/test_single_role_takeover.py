"""A genuine controller and genuine brokers, each of one role, are killed and become Ottla's on their own directories
and with their own server.properties, and genuine again, while clients write."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.evidence import check_exactly_once, kept_on_failure
from tests.support.genuine_quorum import GenuineBroker, GenuineController, addresses
from tests.support.new_topics import is_created
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import listens
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import state_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

CONTROLLER, BROKERS = 100, (1, 2)
TIMEOUT_S = 120.0
SETTINGS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": "4000",
    "auto.leader.rebalance.enable": "false",
}


class InPlace(OttlaProcess):
    """`ottla serve server.properties`, with the file that genuine Kafka has had."""

    def __init__(self, directory: Path, *, port: int, controller: bool) -> None:
        super().__init__(directory, port=port)
        self._is_controller = controller
        self._listening = port

    def command(self) -> list[str]:
        own = super().command()
        return [*own[: own.index("--allow-insecure") + 1], str(self.directory / "server.properties")]

    def answers(self) -> bool:
        """A controller answers when its port is open."""
        return listens(self._listening) if self._is_controller else super().answers()


class Nodes:
    """Each node, genuine and as Ottla, and the one of the two that runs."""

    def __init__(self, directory: Path) -> None:
        quorum = addresses(CONTROLLER)
        own = quorum[CONTROLLER]
        self.genuine: dict[int, BrokerProcess] = {
            CONTROLLER: GenuineController(own, quorum, directory / str(CONTROLLER), properties=SETTINGS)
        }
        for number in BROKERS:
            self.genuine[number] = GenuineBroker(number, quorum, SETTINGS, directory / str(number))
        self.ottla: dict[int, BrokerProcess] = {
            number: InPlace(
                directory / str(number),
                port=own.port if number == CONTROLLER else node.port,
                controller=number == CONTROLLER,
            )
            for number, node in self.genuine.items()
        }
        self.running = dict(self.genuine)
        self.bootstrap = ",".join(self.genuine[number].bootstrap for number in BROKERS)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def kill(self, number: int) -> None:
        self.running[number].kill()

    def committed_more(self, transactions: TransactionalLoad, than: int) -> bool:
        return len(transactions.committed()) > than + 9

    def all_in_sync(self) -> bool:
        try:
            topics = self.admin.list_topics(timeout=10).topics
        except KafkaException:
            return False
        parts = [part for topic in topics.values() for part in topic.partitions.values()]
        return bool(parts) and all(set(part.isrs) == set(BROKERS) and part.leader > 0 for part in parts)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    with ExitStack() as stack:
        for number, node in made.running.items():
            stack.callback(made.kill, number)
            node.start(wait=False)
        for node in made.running.values():
            node.wait_until_ready()
        yield made


def test_each_is_killed_and_replaced_and_back(nodes: Nodes, request: pytest.FixtureRequest) -> None:
    for topic in ("orders", "paid"):
        nodes.admin.create_topics([NewTopic(topic, 4, 2)])[topic].result(60)
    eventually(nodes.all_in_sync, timeout_s=TIMEOUT_S)
    with (
        SteadyProducer(nodes.bootstrap, "orders", **ONE_IN_FLIGHT) as producer,
        TransactionalLoad(nodes.bootstrap, "paid", 1) as transactions,
        kept_on_failure(
            request.node.name,
            nodes.running,
            {
                "producer": lambda: [*map(str, producer.failed), *producer.log],
                "transactions": lambda: transactions.producers[0].problems,
                "cluster": lambda: [state_of(nodes.bootstrap, topic) for topic in ("orders", "paid")],
            },
        ),
    ):
        for kind, successors in (("ottla", nodes.ottla), ("genuine", nodes.genuine)):
            for number in (CONTROLLER, *BROKERS):
                producer.until_acknowledged(100)
                committed = len(transactions.committed())
                nodes.running[number].kill()
                nodes.running[number] = successors[number]
                successors[number].start()
                topic = f"{kind}-{number}"
                eventually(partial(is_created, nodes.admin, topic, replicas=2), timeout_s=TIMEOUT_S)
                eventually(nodes.all_in_sync, timeout_s=TIMEOUT_S)
                producer.until_acknowledged(100)
                eventually(partial(nodes.committed_more, transactions, committed), timeout_s=TIMEOUT_S)
        producer.stop()
        transactions.stop()
        log_dirs = {number: nodes.running[number].log_dir for number in BROKERS}
        for topic, wanted in (
            ("orders", {value for _, value in producer.acknowledged}),
            ("paid", set(transactions.committed())),
        ):
            check_exactly_once(nodes.bootstrap, topic, wanted, log_dirs, timeout_s=TIMEOUT_S)
        assert producer.failed == []
