"""Brokers that die or stop: others take over, nothing acknowledged is lost, and nobody waits for long."""

import pytest

from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.steady_consumer import SteadyConsumer
from tests.support.steady_producer import SteadyProducer
from tests.support.whole_topic import read_all, read_in_group


def check_nothing_lost(cluster: OttlaCluster, topic: str, producer: SteadyProducer) -> None:
    """What was acknowledged is there, once."""
    assert producer.failed == []
    values = [value for _, value in producer.acknowledged]
    found = read_all(cluster.bootstrap, topic, len(values))
    assert len(found) == len(set(found)), "something was written twice"
    assert set(values) <= set(found)


@pytest.mark.timeout(240)
def test_nothing_acknowledged_is_lost_when_brokers_are_killed_one_after_the_other(cluster: OttlaCluster) -> None:
    """One of them is the controller, too."""
    cluster.create("t", partitions=3)
    with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
        producer.until_acknowledged(200)
        for number, broker in cluster.brokers.items():
            broker.kill()
            cluster.until_led_by("t", set(cluster.brokers) - {number})
            producer.until_acknowledged(200)
            broker.start()
            cluster.until_in_sync("t", *cluster.brokers)
            producer.until_acknowledged(50)
    check_nothing_lost(cluster, "t", producer)
    count = len(producer.acknowledged)
    assert len(set(read_in_group(cluster.bootstrap, "t", "late", count))) >= count


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "pause_s",
    [
        pytest.param(3.0, id="on a machine that does other things"),
        pytest.param(1.0, id="on a machine of its own", marks=pytest.mark.soak),
    ],
)
def test_a_rolling_restart_moves_leadership_first_and_makes_nobody_wait(cluster: OttlaCluster, pause_s: float) -> None:
    cluster.create("t", partitions=3)
    with (
        SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer,
        SteadyConsumer(cluster.bootstrap, "t") as consumer,
    ):
        producer.until_acknowledged(200)
        eventually(lambda: len(consumer.read) > 100)
        for broker in cluster.brokers.values():
            broker.restart()
            cluster.until_in_sync("t", *cluster.brokers)
            producer.until_acknowledged(100)
        producer.stop()
        sent = {value for _, value in producer.acknowledged}
        eventually(lambda: {value for _, value in consumer.read} >= sent)
    check_nothing_lost(cluster, "t", producer)
    assert producer.longest_pause_s() < pause_s
    assert consumer.longest_pause_s() < pause_s


def test_without_enough_replicas_in_sync_writes_are_refused_and_go_on_when_they_are_back(
    cluster: OttlaCluster,
) -> None:
    cluster.create("t", partitions=1)
    leader = cluster.leader("t")
    followers = [broker for number, broker in cluster.brokers.items() if number != leader]
    for broker in followers:
        broker.kill()
    eventually(lambda: cluster.in_sync("t") == {leader}, timeout_s=30)
    with SteadyProducer(cluster.bootstrap, "t", **{"message.timeout.ms": 1500}) as refused:
        eventually(lambda: refused.failed, timeout_s=30)
    assert refused.acknowledged == []
    followers[0].start()
    eventually(lambda: len(cluster.in_sync("t")) == 2, timeout_s=30)
    with SteadyProducer(cluster.bootstrap, "t") as taken:
        taken.until_acknowledged(10)
    assert taken.failed == []
