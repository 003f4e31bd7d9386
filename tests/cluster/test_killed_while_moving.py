"""A cluster moves from ZooKeeper to its own controllers, which are killed at each step of that, or not; or it stays."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.eventually import eventually
from tests.support.genuine_quorum import Address, addresses, static_voters
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_process import OttlaProcess
from tests.support.quorum_nodes import PROTOCOLS, OttlaNode
from tests.support.steady_producer import SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

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


@pytest.mark.parametrize("line", [None, FROZEN, READ, COMMITTED_TO_LOG])
def test_the_active_controller_is_killed(cluster: OttlaCluster, line: str | None) -> None:
    quorum = addresses(*cluster.brokers)
    brokers = cluster.brokers.values()
    with load(cluster) as producer:
        for number, broker in cluster.brokers.items():
            broker.properties |= combined(broker, quorum, number)
            began = time.monotonic()
            broker.restart()
        if line is not None:
            killed = at(line, *brokers)
            killed.kill()
            killed.start()
        until_moved(*brokers)
        cluster.create("later")
    print(f"{line}: longest wait of a record {producer.longest_wait_s(began):.2f} s")
    for topic in (TOPIC, COMMITTED, "later"):
        cluster.until_in_sync(topic, *cluster.brokers)


@pytest.mark.parametrize("line", [FROZEN, COMMITTED_TO_LOG, LEAVES])
def test_another_node_is_killed(cluster: OttlaCluster, line: str) -> None:
    """One that is broker and controller, and not the active one; also in the middle of its own switch."""
    quorum = addresses(*cluster.brokers)
    brokers = cluster.brokers.values()
    with load(cluster) as producer:
        for number, broker in cluster.brokers.items():
            broker.properties |= combined(broker, quorum, number)
            began = time.monotonic()
            broker.restart()
        active = at(FROZEN, *brokers)
        others = [broker for broker in brokers if broker is not active]
        killed = at(line, *others) if line is LEAVES else others[0]
        if line is COMMITTED_TO_LOG:
            at(line, active)
        killed.kill()
        killed.start()
        until_moved(*brokers)
        cluster.create("later")
        print(f"{line}, another one: longest wait of a record {producer.longest_wait_s(began):.2f} s")
    for topic in (TOPIC, COMMITTED, "later"):
        cluster.until_in_sync(topic, *cluster.brokers)


def test_most_controllers_are_killed_after_the_freeze(cluster: OttlaCluster) -> None:
    """Controllers apart from the brokers, which serve as before while nobody decides."""
    quorum = addresses(11, 12, 13)
    brokers = cluster.brokers.values()
    moving = {"zookeeper.connect": cluster.brokers[1].properties["zookeeper.connect"]}
    with ExitStack() as stack, load(cluster) as producer:
        controllers = []
        for own in quorum.values():
            node = UnformattedController(own, quorum, broker=False, properties={**under(quorum), **moving})
            stack.callback(node.kill)
            node.start(wait=False)
            controllers.append(node)
        for node in controllers:
            node.wait_until_ready()
        for broker in brokers:
            broker.properties |= under(quorum)
            began = time.monotonic()
            broker.restart()
        active = at(FROZEN, *controllers)
        others = [node for node in controllers if node is not active]
        for node in others:
            node.kill()
        producer.until_acknowledged(100)
        for node in others:
            node.start()
        until_moved(*brokers, *controllers)
        print(f"controllers apart: longest wait of a record {producer.longest_wait_s(began):.2f} s")

        # With the same settings, and with those of later.
        cluster.brokers[1].restart()
        for name in ("zookeeper.connect", "zookeeper.metadata.migration.enable"):
            del cluster.brokers[2].properties[name]
        cluster.brokers[2].properties["process.roles"] = "broker"
        cluster.brokers[2].restart()
        controllers[0].stop()
        controllers[0].start()
        cluster.until_in_sync(TOPIC, *cluster.brokers)
        for topic in (TOPIC, COMMITTED):
            cluster.until_in_sync(topic, *cluster.brokers)


def test_before_the_freeze_there_is_a_way_back(cluster: OttlaCluster) -> None:
    quorum = addresses(*cluster.brokers)
    with load(cluster) as producer:
        for number in (1, 2):  # of three: a majority of the controllers
            broker = cluster.brokers[number]
            before = dict(broker.properties)
            broker.properties |= combined(broker, quorum, number)
            broker.restart()
            broker.properties = before
        at("broker 3 was started without the settings of the quorum", *cluster.brokers.values())
        for number in (1, 2):
            cluster.brokers[number].restart()
        producer.until_acknowledged(50)
        cluster.create("later")
    assert not any(FROZEN in broker.log_text() for broker in cluster.brokers.values())
    for topic in (TOPIC, COMMITTED, "later"):
        cluster.until_in_sync(topic, *cluster.brokers)
