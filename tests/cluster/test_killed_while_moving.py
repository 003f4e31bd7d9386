"""A cluster moves from ZooKeeper to its own controllers, which are killed at each step of that, or not; or it stays."""

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from tests.support.broker_process import BrokerFailedError
from tests.support.genuine_quorum import addresses
from tests.support.moving_cluster import (
    COMMITTED,
    COMMITTED_TO_LOG,
    FROZEN,
    LEAVES,
    READ,
    TOPIC,
    at,
    combined,
    controllers_apart,
    load,
    restart_combined,
    under,
    until_moved,
)
from tests.support.ottla_cluster import OttlaCluster
from tests.support.ottla_process import OttlaProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.mark.parametrize("line", [None, FROZEN, READ, COMMITTED_TO_LOG])
def test_the_active_controller_is_killed(cluster: OttlaCluster, line: str | None) -> None:
    quorum = addresses(*cluster.brokers)
    brokers = cluster.brokers.values()
    with load(cluster) as producer:
        began = restart_combined(cluster, quorum)
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
        began = restart_combined(cluster, quorum)
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
    with ExitStack() as stack, load(cluster) as producer:
        controllers = controllers_apart(stack, cluster, quorum)
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


def test_most_controllers_lose_their_disks_after_the_freeze(cluster: OttlaCluster) -> None:
    """The tree in ZooKeeper is whole until the move is committed: controllers on empty disks read it again."""
    quorum = addresses(11, 12, 13)
    brokers = cluster.brokers.values()
    with ExitStack() as stack, load(cluster) as producer:
        controllers = controllers_apart(stack, cluster, quorum)
        for broker in brokers:
            broker.properties |= under(quorum)
            broker.restart()
        active = at(FROZEN, *controllers)
        others = [node for node in controllers if node is not active]
        for node in others:
            node.kill()
        assert COMMITTED_TO_LOG not in active.log_text(), "the test is too slow to say anything"
        properties = dict(line.split("=", 1) for line in (active.log_dir / "meta.properties").read_text().split())
        for node in others:
            shutil.rmtree(node.log_dir)
            with pytest.raises(BrokerFailedError, match="not formatted for a controller"):
                node.start()
            formatted(node, properties["cluster.id"])
            node.start()
        until_moved(*brokers, *controllers)
        cluster.create("later")
        producer.until_acknowledged(50)

        # Now the log is the truth, and ZooKeeper's tree is out of date.
        for node in controllers:
            node.kill()
        for node in others:
            shutil.rmtree(node.log_dir)
            formatted(node, properties["cluster.id"])
            node.start()
        at("the cluster has left ZooKeeper before", *others)
        producer.until_acknowledged(50)
    for topic in (TOPIC, COMMITTED, "later"):
        assert cluster.leader(topic) in cluster.brokers


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


def formatted(node: OttlaProcess, cluster_id: str) -> None:
    """Format the directories of a controller as its operator would."""
    file = node.directory / "format.properties"
    settings = {**node.properties, "log.dirs": str(node.log_dir)}
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "ottla.cli.main", "storage", "format", "-t", cluster_id, "-c", str(file)]
    subprocess.run(command, check=True, capture_output=True)
