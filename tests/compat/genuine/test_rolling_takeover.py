"""Three genuine Kafka 4.3.1 nodes become Ottla's, one by one, on their own directories and with their own
server.properties, while clients write; then they become genuine again.

Each node is broker and controller. Printed are the figures of each step (`pytest -s`).
"""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.evidence import check_exactly_once, kept_on_failure
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.steady_consumer import SteadyConsumer
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.tool_server import kafka_tool
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import state_of

from ottla.cli.app import run
from ottla.ids import uuid_to_text

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

NUMBERS = (1, 2, 3)
TIMEOUT_S = 120.0
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
}


class InPlace(OttlaProcess):
    """`ottla serve server.properties`, with the file that genuine Kafka has had."""

    def command(self) -> list[str]:
        own = super().command()
        return [*own[: own.index("--allow-insecure") + 1], str(self.directory / "server.properties")]


@dataclass
class Step:
    """What was seen while one process took another one's place."""

    what: str
    stopped_s: float
    in_sync_s: float
    """From then on, until the other one was in sync everywhere, and voted."""
    longest_wait_s: float
    longest_transaction_s: float

    def __str__(self) -> str:
        return (
            f"{self.what}: stopped in {self.stopped_s:.1f} s, in sync {self.in_sync_s:.1f} s later; longest "
            f"wait of a record {self.longest_wait_s:.2f} s, of a transaction {self.longest_transaction_s:.2f} s"
        )


class Cluster:
    """Three nodes, each of which can run as genuine Kafka and as Ottla."""

    def __init__(self, directory: Path, *, dynamic: bool) -> None:
        self.ports = {number: free_port() for number in NUMBERS}
        self.controllers = {number: free_port() for number in NUMBERS}
        ids = {number: uuid_to_text(uuid4()) for number in NUMBERS}
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.controllers.values())
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in self.controllers.items())
        first = ",".join(f"{number}@127.0.0.1:{port}:{ids[number]}" for number, port in self.controllers.items())
        self.genuine: dict[int, BrokerProcess] = {}
        self.ottla: dict[int, BrokerProcess] = {}
        for number, port in self.ports.items():
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{self.controllers[number]}"
            properties = {
                **SETTINGS,
                "node.id": str(number),
                "listeners": listeners,
                "advertised.listeners": listeners,
                "controller.quorum.voters": "" if dynamic else voters,
                **({"controller.quorum.bootstrap.servers": bootstrap} if dynamic else {}),
            }
            self.genuine[number] = GenuineKafka(
                directory / str(number),
                port=port,
                properties=properties,
                heap="320m",
                format_options=("--initial-controllers", first) if dynamic else (),
            )
            self.ottla[number] = InPlace(directory / str(number), port=port)
        self.running = dict(self.genuine)
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.running.values())

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create(self, topic: str, partitions: int) -> None:
        with kept_on_failure(f"create-{topic}", self.running, {"cluster": self.state}):
            self.admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(60)
            eventually(self.all_in_sync, timeout_s=TIMEOUT_S)

    def all_in_sync(self) -> bool:
        """Whether every replica of every partition is in sync, and its partition led."""
        try:
            topics = self.admin.list_topics(timeout=10).topics
        except KafkaException:
            return False
        parts = [part for topic in topics.values() for part in topic.partitions.values()]
        return bool(parts) and all(set(part.isrs) == set(NUMBERS) and part.leader > 0 for part in parts)

    def state(self) -> list[str]:
        """What the brokers say of every topic."""
        return [state_of(self.bootstrap, topic) for topic in self.admin.list_topics(timeout=10).topics]

    def all_vote(self, at: int) -> bool:
        """Whether every voter has followed the metadata log nearly to its end, by way of this node's controller."""
        table = self.quorum("--replication", at=at)
        rows = [line.split() for line in table.splitlines()[1:]]
        voters = {int(row[0]): int(row[3]) for row in rows if row[-1] in ("Leader", "Follower")}
        return set(voters) == set(NUMBERS) and max(voters.values()) < 10

    def active(self) -> int:
        """The active controller."""
        return int(self.quorum("--status", at=NUMBERS[0]).split("LeaderId:")[1].split()[0])

    def quorum(self, what: str, *, at: int) -> str:
        """What Kafka's tool says about the quorum, asked at a controller: genuine brokers may ask one that has lost the
        lead, for as long as they forward nothing else."""
        controller = f"127.0.0.1:{self.controllers[at]}"
        return kafka_tool("MetadataQuorumCommand", "--bootstrap-controller", controller, "describe", what).stdout

    def elect_preferred(self) -> None:
        """Let each node lead its part again."""

        def has_elected() -> bool:
            self.admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
            topics = self.admin.list_topics(timeout=20).topics
            return all(part.leader == part.replicas[0] for each in topics.values() for part in each.partitions.values())

        eventually(has_elected, timeout_s=TIMEOUT_S, interval_s=0.3)

    def tool(self, name: str, *arguments: str, at: int) -> str:
        """What a console tool of genuine Kafka prints when it asks this node's broker."""
        return kafka_tool(name, "--bootstrap-server", self.running[at].bootstrap, *arguments).stdout


@pytest.fixture(params=[False, True], ids=["static voters", "dynamic voters"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, dynamic=request.param)
    try:
        for node in cluster.running.values():
            node.start(wait=False)
        for node in cluster.running.values():
            node.wait_until_ready()
        yield cluster
    finally:
        for node in cluster.running.values():
            node.kill()


class Load:
    """All that goes on meanwhile."""

    def __init__(self, producer: SteadyProducer, transactions: TransactionalLoad) -> None:
        self.producer = producer
        self.transactions = transactions

    def goes_on(self) -> None:
        """Wait until each of them has got further."""
        committed = len(self.transactions.committed())
        self.producer.until_acknowledged(100)
        eventually(lambda: len(self.transactions.committed()) > committed + 9, timeout_s=TIMEOUT_S)

    def kept_on_failure(self, cluster: Cluster, request: pytest.FixtureRequest) -> AbstractContextManager[None]:
        """What explains a failure."""
        notes = {
            "producer": lambda: [*map(str, self.producer.failed), *self.producer.log],
            "transactions": lambda: problems(self.transactions),
            "cluster": cluster.state,
            "quorum": lambda: [cluster.quorum("--replication", at=number) for number in NUMBERS],
        }
        return kept_on_failure(request.node.name, cluster.running, notes)

    def check(self, cluster: Cluster, *, in_new_epochs: bool = False) -> None:
        """Every acknowledged record, and every committed one, is there once.

        `in_new_epochs`: the producer may have appended some twice, if a genuine leader had it begin a new epoch.
        """
        log_dirs = {number: node.log_dir for number, node in cluster.running.items()}
        begun = any("OutOfOrderSequenceException" in node.log_text() for node in cluster.genuine.values())
        for topic, wanted in (
            ("orders", {value for _, value in self.producer.acknowledged}),
            ("paid", set(self.transactions.committed())),
        ):
            check_exactly_once(
                cluster.bootstrap,
                topic,
                wanted,
                log_dirs,
                timeout_s=TIMEOUT_S,
                in_new_epochs=in_new_epochs and begun and topic == "orders",
            )
        assert self.producer.failed == []

    def begin_step(self) -> float:
        for each in self.transactions.producers:
            each.longest_s = 0.0
        return time.monotonic()


def replace(
    cluster: Cluster,
    load: Load,
    number: int,
    successors: Mapping[int, BrokerProcess],
    kind: str,
    *,
    kill: bool = False,
) -> Step:
    """Stop a node in order, or kill it, and start another one in its place."""
    was_active = cluster.active() == number
    began = load.begin_step()
    if kill:
        cluster.running[number].kill()
    else:
        assert cluster.running[number].stop() in (0, 143)  # a virtual machine ends with that at SIGTERM
    stopped = time.monotonic()
    node = cluster.running[number] = successors[number]
    node.start()
    eventually(cluster.all_in_sync, timeout_s=TIMEOUT_S)
    eventually(lambda: cluster.all_vote(number), timeout_s=TIMEOUT_S)
    in_sync = time.monotonic()
    cluster.elect_preferred()
    load.goes_on()
    return Step(
        f"node {number}, {'the active controller, ' if was_active else ''}to {kind}",
        stopped - began,
        in_sync - stopped,
        load.producer.longest_wait_s(began),
        load.transactions.longest_s(),
    )


def check_tools(cluster: Cluster, at: int, turn: str) -> None:
    """Kafka's tools by way of one node, its broker and its controller; Ottla's by way of all controllers."""
    topic = f"made-{turn}"
    cluster.tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", at=at)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    cluster.tool("ConfigCommand", "--alter", *of_topic, "--add-config", "retention.ms=12345", at=at)
    described = eventually(
        lambda: (
            text
            if "retention.ms=12345" in (text := cluster.tool("TopicCommand", "--describe", "--topic", topic, at=at))
            else None
        )
    )
    assert "ReplicationFactor: 3" in described
    assert "orders" in cluster.tool("ConsumerGroupCommand", "--describe", "--group", "steady", at=at)
    assert "LeaderId:" in cluster.quorum("--status", at=at)
    controllers = ",".join(f"127.0.0.1:{port}" for port in cluster.controllers.values())
    assert run(["quorum", "status", "--bootstrap", controllers]) == 0


def check_refuses_to_share(cluster: Cluster, number: int) -> None:
    """What is started too early, while the other process has the directory still, ends at once."""
    node = cluster.ottla[number]
    done = subprocess.run(node.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is in use by another process" in done.stderr


def wait_without(cluster: Cluster, *, kill: bool) -> float:
    """How long a record waits at most while the active controller's genuine node is stopped, or killed, and started
    again."""
    with SteadyProducer(cluster.bootstrap, "before") as producer:
        producer.until_acknowledged(100)
        cluster.running[cluster.active()].restart(kill=kill)
        eventually(cluster.all_in_sync, timeout_s=TIMEOUT_S)
        producer.until_acknowledged(100)
        cluster.elect_preferred()
    return producer.longest_wait_s()


def identity(cluster: Cluster) -> Sequence[Mapping[str, str]]:
    """What meta.properties says in each node's directory."""
    files = [(node.log_dir / "meta.properties").read_text() for node in cluster.running.values()]
    lines = [[line.split("=", 1) for line in text.splitlines() if not line.startswith("#")] for text in files]
    return [dict(each) for each in lines]


def test_nodes_are_replaced_one_by_one_and_back(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    cluster.create("before", 6)
    cluster.create("orders", 6)
    cluster.create("paid", 6)
    election_s = wait_without(cluster, kill=False)
    failover_s = wait_without(cluster, kill=True)
    print(f"\ngenuine Kafka alone: {election_s:.2f} s while a node is restarted, {failover_s:.2f} s when it is killed")
    owners = identity(cluster)
    check_refuses_to_share(cluster, NUMBERS[0])
    steps: list[Step] = []
    with (
        SteadyProducer(cluster.bootstrap, "orders", **{"enable.idempotence": True}) as producer,
        TransactionalLoad(cluster.bootstrap, "paid", 2) as transactions,
        SteadyConsumer(cluster.bootstrap, "orders") as consumer,
        Load(producer, transactions).kept_on_failure(cluster, request),
    ):
        load = Load(producer, transactions)
        load.goes_on()
        eventually(lambda: consumer.read, timeout_s=TIMEOUT_S)
        for kind, successors in (("Ottla", cluster.ottla), ("genuine Kafka", cluster.genuine)):
            for number in NUMBERS:
                steps.append(replace(cluster, load, number, successors, kind))
                print(steps[-1], flush=True)
                check_tools(cluster, number, f"{kind.split()[0]}-{number}")
        load.goes_on()
        producer.stop()
        transactions.stop()
        wanted = {value for _, value in producer.acknowledged}
        eventually(lambda: {value for _, value in consumer.read} >= wanted, timeout_s=TIMEOUT_S)
        assert identity(cluster) == owners
        load.check(cluster, in_new_epochs=True)
    assert max(step.longest_wait_s for step in steps) < max(election_s, failover_s)
    committed = len(transactions.committed())
    print(f"{len(wanted)} records, {committed // 3} transactions; problems: {problems(transactions)}")


def test_killed_nodes_are_replaced_on_their_directories(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    cluster.create("orders", 6)
    cluster.create("paid", 6)
    with (
        SteadyProducer(cluster.bootstrap, "orders", **ONE_IN_FLIGHT) as producer,
        TransactionalLoad(cluster.bootstrap, "paid", 2) as transactions,
        Load(producer, transactions).kept_on_failure(cluster, request),
    ):
        load = Load(producer, transactions)
        load.goes_on()
        for kind, successors in (("Ottla", cluster.ottla), ("genuine Kafka", cluster.genuine)):
            for number in NUMBERS:
                print(replace(cluster, load, number, successors, kind, kill=True), flush=True)
        load.goes_on()
        producer.stop()
        transactions.stop()
        load.check(cluster)


def problems(transactions: TransactionalLoad) -> Sequence[str]:
    """What transactional producers were refused."""
    return [problem for each in transactions.producers for problem in each.problems]
