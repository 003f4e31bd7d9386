"""Restarts by somebody who waits for nothing: a supervisor, a script, an operator whose ZooKeeper is away."""

import shutil
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

SUPERVISORS_TIMEOUT_S = 20.0
"""Kubernetes, systemd and Docker wait for 10 to 90 s before they kill; a busy machine needs some of that itself."""


@pytest.fixture
def lost_zookeeper() -> Iterator[ZooKeeperServer]:
    """One that a test may take away."""
    with ZooKeeperServer() as server:
        yield server


def seconds_to_stop(cluster: OttlaCluster, number: int) -> float:
    began = time.monotonic()
    assert cluster.brokers[number].stop() == 0
    return time.monotonic() - began


def test_each_broker_is_restarted_without_waiting_for_the_one_before(zookeeper: ZooKeeperServer) -> None:
    """The last one has just become the controller, and knows of nobody else."""
    with OttlaCluster(f"{zookeeper.connect}/{uuid4()}", transaction_state_log_min_isr="2") as cluster:
        cluster.create("t", 3)
        with TransactionalLoad(cluster.bootstrap, "t", 4) as load:
            eventually(lambda: len(load.committed()) > 100, timeout_s=60)
            for _ in range(2):
                took = []
                for number, broker in cluster.brokers.items():
                    took.append(seconds_to_stop(cluster, number))
                    broker.start(wait=False)
                assert max(took) < SUPERVISORS_TIMEOUT_S / 2
                before = len(load.committed())
                eventually(lambda before=before: len(load.committed()) > before + 100, timeout_s=60)
            assert load.longest_s() < SUPERVISORS_TIMEOUT_S
        values = load.committed()
        assert sorted(read_all(cluster.bootstrap, "t", len(values))) == sorted(values)


def test_without_zookeeper_a_broker_stops_within_seconds(lost_zookeeper: ZooKeeperServer) -> None:
    with OttlaCluster(f"{lost_zookeeper.connect}/c") as cluster:
        cluster.create("t", 3)
        lost_zookeeper.kill()
        assert max(seconds_to_stop(cluster, number) for number in cluster.brokers) < SUPERVISORS_TIMEOUT_S


def test_a_zookeeper_that_has_lost_its_data_is_reported(lost_zookeeper: ZooKeeperServer) -> None:
    with OttlaCluster(f"{lost_zookeeper.connect}/c", brokers=1, default_replication_factor="1") as cluster:
        cluster.create("t", 1, 1, min_insync_replicas="1")
        lost_zookeeper.kill()
        for path in lost_zookeeper.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        lost_zookeeper.start()
        eventually(lambda: "bring that data back" in cluster.brokers[1].log_text(), timeout_s=40)
        assert seconds_to_stop(cluster, 1) < SUPERVISORS_TIMEOUT_S
