"""A genuine ZooKeeper for all tests of a module, and clusters on it."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.ottla_cluster import OttlaCluster
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer) -> Iterator[OttlaCluster]:
    """Three brokers, for one test."""
    with OttlaCluster(f"{zookeeper.connect}/{uuid4()}") as started:
        yield started
