"""Where nobody listens others lead, long before the session ends; and a mistake in that costs nothing (ADR 16)."""

from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from ottla.errors import ErrorCode
from tests.cluster.test_fencing import Client
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.probe import free_port
from tests.support.raw_client import RawConnection
from tests.support.steady_producer import SteadyProducer
from tests.support.unreliable_link import UnreliableLink
from tests.support.whole_topic import read_all
from tests.support.zookeeper import ZooKeeperServer

VICTIM = 2
"""Not the controller: that one waits for its session (docs/cluster.md)."""
OTHERS = {1, 3}
TIMEOUT_S = 30


def long_sessions(zookeeper: ZooKeeperServer) -> OttlaCluster:
    """Three brokers with sessions, and patience with followers, that last longer than a test waits for anything."""
    where = f"{zookeeper.connect}/{uuid4()}"
    return OttlaCluster(where, controller=1, zookeeper_session_timeout_ms="60000", replica_lag_time_max_ms="120000")


def make_topic(cluster: OttlaCluster) -> None:
    """Create the topic `t`, which the victim leads."""
    admin = AdminClient({"bootstrap.servers": others(cluster), "log_level": 0})
    assert admin.list_topics(timeout=20).controller_id != VICTIM
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[VICTIM, *OTHERS]])])["t"].result(30)
    eventually(lambda: state(cluster).leader == VICTIM and len(state(cluster).isrs) == 3)


def others(cluster: OttlaCluster) -> str:
    return ",".join(cluster.brokers[number].bootstrap for number in OTHERS)


def state(cluster: OttlaCluster) -> PartitionMetadata:
    """The partition, as one of the others describes it.

    Each question has a client of its own, which knows only the others: librdkafka keeps a question for a broker that it
    has spoken with until that is there again.
    """
    admin = AdminClient({"bootstrap.servers": others(cluster), "log_level": 0})
    found: PartitionMetadata = admin.list_topics("t", timeout=20).topics["t"].partitions[0]
    return found


def others_lead(cluster: OttlaCluster) -> bool:
    found = state(cluster)
    return found.leader in OTHERS and set(found.isrs) == OTHERS


@pytest.mark.timeout(240)
def test_a_killed_leader_is_replaced_before_its_session_ends(zookeeper: ZooKeeperServer) -> None:
    with long_sessions(zookeeper) as cluster:
        make_topic(cluster)
        with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
            producer.until_acknowledged(50)
            cluster.brokers[VICTIM].kill()
            eventually(lambda: others_lead(cluster), timeout_s=TIMEOUT_S)
            producer.until_acknowledged(50)
            cluster.brokers[VICTIM].start()
            eventually(lambda: set(state(cluster).isrs) == {VICTIM, *OTHERS}, timeout_s=TIMEOUT_S)
        assert producer.failed == []
        values = [value for _, value in producer.acknowledged]
        assert set(values) <= set(read_all(cluster.bootstrap, "t", len(values)))


@pytest.mark.timeout(240)
def test_a_broker_that_is_fenced_by_mistake_takes_nothing_until_a_controller_sends_its_partitions(
    zookeeper: ZooKeeperServer,
) -> None:
    """Whoever opens a connection to its advertised address is refused; it reaches everybody, and keeps its session."""
    cluster = long_sessions(zookeeper)
    victim = cluster.brokers[VICTIM]
    port = free_port()
    victim.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    link = UnreliableLink(victim.port, port)
    with link, cluster:
        make_topic(cluster)
        with RawConnection(victim.bootstrap) as connection:
            client = Client(connection)
            assert client.produce("before", acks=1) is ErrorCode.NONE
            assert client.produce("before, too", acks=-1) is ErrorCode.NONE
            link.__exit__(None, None, None)
            eventually(lambda: others_lead(cluster), timeout_s=TIMEOUT_S)
            eventually(lambda: client.produce("late") is ErrorCode.NOT_LEADER_OR_FOLLOWER, timeout_s=TIMEOUT_S)
        with SteadyProducer(others(cluster), "t") as producer:
            producer.until_acknowledged(20)
        with UnreliableLink(victim.port, port):
            eventually(lambda: set(state(cluster).isrs) == {VICTIM, *OTHERS}, timeout_s=TIMEOUT_S)
        sent = {b"before", b"before, too"} | {value for _, value in producer.acknowledged}
        assert sent <= set(read_all(others(cluster), "t", len(sent)))
