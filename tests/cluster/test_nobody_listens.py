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
"""Not the controller: that is broker 1, which is started first."""
OTHERS = {1, 3}
PATIENCE_S = 30


def long_sessions(zookeeper: ZooKeeperServer) -> OttlaCluster:
    """Three brokers with sessions, and patience with followers, that last longer than a test waits for anything."""
    where = f"{zookeeper.connect}/{uuid4()}"
    return OttlaCluster(where, zookeeper_session_timeout_ms="60000", replica_lag_time_max_ms="120000")


def made(cluster: OttlaCluster) -> AdminClient:
    """The topic `t`, which the victim leads; asks the others only."""
    admin = AdminClient({"bootstrap.servers": others(cluster), "log_level": 0})
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[VICTIM, *OTHERS]])])["t"].result(30)
    eventually(lambda: state(admin).leader == VICTIM and len(state(admin).isrs) == 3)
    return admin


def others(cluster: OttlaCluster) -> str:
    return ",".join(cluster.brokers[number].bootstrap for number in OTHERS)


def state(admin: AdminClient) -> PartitionMetadata:
    found: PartitionMetadata = admin.list_topics("t", timeout=20).topics["t"].partitions[0]
    return found


@pytest.mark.timeout(240)
def test_a_killed_leader_is_replaced_before_its_session_ends(zookeeper: ZooKeeperServer) -> None:
    with long_sessions(zookeeper) as cluster:
        admin = made(cluster)
        with SteadyProducer(cluster.bootstrap, "t", **{"enable.idempotence": True}) as producer:
            producer.until_acknowledged(50)
            cluster.brokers[VICTIM].kill()
            eventually(lambda: state(admin).leader in OTHERS and set(state(admin).isrs) == OTHERS, timeout_s=PATIENCE_S)
            producer.until_acknowledged(50)
            cluster.brokers[VICTIM].start()
            eventually(lambda: set(state(admin).isrs) == {VICTIM, *OTHERS}, timeout_s=PATIENCE_S)
        assert producer.failed == []
        values = [value for _, value in producer.acknowledged]
        assert set(values) <= set(read_all(cluster.bootstrap, "t", len(values)))


@pytest.mark.timeout(240)
def test_a_broker_that_is_given_up_by_mistake_takes_nothing_until_it_is_spoken_to(zookeeper: ZooKeeperServer) -> None:
    """Whoever opens a connection to its advertised address is refused; it reaches everybody, and keeps its session."""
    cluster = long_sessions(zookeeper)
    victim = cluster.brokers[VICTIM]
    port = free_port()
    victim.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    link = UnreliableLink(victim.port, port)
    with link, cluster:
        admin = made(cluster)
        with RawConnection(victim.bootstrap) as connection:
            client = Client(connection)
            assert client.produce("before", acks=1) is ErrorCode.NONE
            assert client.produce("before, too", acks=-1) is ErrorCode.NONE
            link.__exit__(None, None, None)
            eventually(lambda: state(admin).leader in OTHERS and set(state(admin).isrs) == OTHERS, timeout_s=PATIENCE_S)
            eventually(lambda: client.produce("late") is ErrorCode.NOT_LEADER_OR_FOLLOWER, timeout_s=PATIENCE_S)
        with SteadyProducer(others(cluster), "t") as producer:
            producer.until_acknowledged(20)
        with UnreliableLink(victim.port, port):
            eventually(lambda: set(state(admin).isrs) == {VICTIM, *OTHERS}, timeout_s=PATIENCE_S)
        sent = {b"before", b"before, too"} | {value for _, value in producer.acknowledged}
        assert sent <= set(read_all(others(cluster), "t", len(sent)))
