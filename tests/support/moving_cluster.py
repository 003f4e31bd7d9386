"""A cluster that moves from ZooKeeper to its own controllers: settings, load, and what its nodes log."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tests.support.eventually import eventually
from tests.support.genuine_quorum import Address, static_voters
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_process import OttlaProcess
from tests.support.quorum_nodes import PROTOCOLS, OttlaNode
from tests.support.steady_producer import SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all

TOPIC, COMMITTED = "steady", "committed"
FROZEN = "the metadata in ZooKeeper is frozen"
READ = "the frozen metadata is read from ZooKeeper"
COMMITTED_TO_LOG = "is the active controller in epoch"
LEAVES = "this broker leaves ZooKeeper"
LEFT = "has left ZooKeeper, and does not need it"
TIMEOUT_S = 120.0


class UnformattedController(OttlaNode):
    """A controller whose directory is formatted by its start."""

    def prepare(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)


def under(quorum: Mapping[int, Address]) -> dict[str, str]:
    """Settings of a broker that moves to this quorum."""
    return {
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": PROTOCOLS,
        "controller.quorum.voters": static_voters(quorum),
        "zookeeper.metadata.migration.enable": "true",
    }


def combined(broker: OttlaProcess, quorum: Mapping[int, Address], number: int) -> dict[str, str]:
    """The same, of one that is a controller as well."""
    listeners = f"PLAINTEXT://{broker.bootstrap},CONTROLLER://{quorum[number].endpoint}"
    return {**under(quorum), "process.roles": "broker,controller", "listeners": listeners}


def at(line: str, *nodes: OttlaProcess) -> OttlaProcess:
    """The node that logs a line, as soon as it has."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for node in nodes:
            if line in node.log_text():
                return node
        time.sleep(0.001)
    raise AssertionError(f"nobody logs {line!r}")


@contextmanager
def load(cluster: OttlaCluster) -> Iterator[SteadyProducer]:
    """An idempotent and a transactional producer, whose records are there once at the end."""
    for topic in (TOPIC, COMMITTED):
        cluster.create(topic)
    with (
        SteadyProducer(cluster.bootstrap, TOPIC, **{"enable.idempotence": True}) as producer,
        TransactionalLoad(cluster.bootstrap, COMMITTED, 1) as transactions,
    ):
        producer.until_acknowledged(50)
        yield producer
        producer.until_acknowledged(50)
        done = len(transactions.committed())
        eventually(lambda: len(transactions.committed()) > done + 10, timeout_s=TIMEOUT_S)
    assert not producer.failed
    acknowledged = [value for _, value in producer.acknowledged]
    assert sorted(read_all(cluster.bootstrap, TOPIC, len(acknowledged))) == sorted(acknowledged)
    committed = transactions.committed()
    assert sorted(read_all(cluster.bootstrap, COMMITTED, len(committed))) == sorted(committed)


def until_moved(*nodes: OttlaProcess) -> None:
    eventually(lambda: all(LEFT in node.log_text() for node in nodes), timeout_s=TIMEOUT_S)


def restart_combined(cluster: OttlaCluster, quorum: Mapping[int, Address]) -> float:
    """Restart all brokers, as controllers as well, for the move; when the last restart began, by `time.monotonic`."""
    began = 0.0
    for number, broker in cluster.brokers.items():
        broker.properties |= combined(broker, quorum, number)
        began = time.monotonic()
        broker.restart()
    return began


def controllers_apart(stack: ExitStack, cluster: OttlaCluster, quorum: Mapping[int, Address]) -> list[OttlaNode]:
    """Controllers of this quorum that take part in the move of the cluster, ready; killed with `stack`."""
    moving = {"zookeeper.connect": cluster.brokers[1].properties["zookeeper.connect"]}
    controllers: list[OttlaNode] = []
    for own in quorum.values():
        node = UnformattedController(own, quorum, broker=False, properties={**under(quorum), **moving})
        stack.callback(node.kill)
        node.start(wait=False)
        controllers.append(node)
    for controller in controllers:
        controller.wait_until_ready()
    return controllers
