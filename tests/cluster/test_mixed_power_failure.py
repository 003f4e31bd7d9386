"""Genuine Kafka 3.9 and Ottla brokers that all end at once, as when the power fails, and come back in any order."""

from contextlib import ExitStack
from uuid import uuid4

import pytest

from tests.support.eventually import eventually
from tests.support.mixed_cluster import KAFKA, OTTLA, SECOND_OTTLA, TIMEOUT_S, MixedCluster, check_nothing_lost
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

BROKERS = (KAFKA, OTTLA, SECOND_OTTLA)


def until_more(load: SteadyProducer | TransactionalLoad, more: int) -> None:
    def done() -> int:
        return len(load.acknowledged) if isinstance(load, SteadyProducer) else len(load.committed())

    wanted = done() + more
    eventually(lambda: done() >= wanted, timeout_s=2 * TIMEOUT_S)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_nothing_acknowledged_is_lost_when_all_nodes_end_at_once() -> None:
    """SIGKILL of all brokers, and once of ZooKeeper with them; the brokers are started in another order each time.

    The idempotent producer has one request in flight, for the reason that `ONE_IN_FLIGHT` gives.
    """
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer())
        cluster = MixedCluster(f"{zookeeper.connect}/{uuid4()}", ottlas=2)
        for broker in cluster.brokers.values():
            stack.enter_context(broker)
        cluster.create("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], min_insync_replicas="2")
        cluster.create("x", [[2, 1, 3], [1, 3, 2]], min_insync_replicas="2")
        settings = {**ONE_IN_FLIGHT, "message.timeout.ms": 900_000}
        with (
            SteadyProducer(cluster.bootstrap, "t", **settings) as producer,
            TransactionalLoad(cluster.bootstrap, "x", 2) as transactions,
        ):
            for order, zookeeper_ends in (
                ((KAFKA, OTTLA, SECOND_OTTLA), False),
                ((SECOND_OTTLA, OTTLA, KAFKA), True),
                ((OTTLA, KAFKA, SECOND_OTTLA), False),
            ):
                until_more(producer, 300)
                until_more(transactions, 20)
                for number in BROKERS:
                    cluster.brokers[number].kill()
                if zookeeper_ends:
                    zookeeper.restart(kill=True)
                for number in order:
                    cluster.brokers[number].start(wait=False)
                for number in order:
                    cluster.brokers[number].wait_until_ready()
                for topic in ("t", "x"):
                    cluster.until_in_sync(topic, *BROKERS)
            until_more(producer, 100)
            until_more(transactions, 20)
        check_nothing_lost(cluster, "t", producer)
        committed = transactions.committed()
        found = read_all(cluster.bootstrap, "x", len(committed), timeout_s=TIMEOUT_S)
        assert set(committed) <= set(found)
        assert len(found) == len(set(found))
