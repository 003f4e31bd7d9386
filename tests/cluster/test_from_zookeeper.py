"""Brokers move from a store that they share (in memory, for ZooKeeper) to their own controllers, under load."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.admin import Admin
from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.client.errors import ClientError
from ottla.errors import InvalidConfig
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.migration_state import LEFT
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.genuine_quorum import addresses, static_voters
from tests.support.probe import free_port
from tests.support.quorum_nodes import PROTOCOLS
from tests.support.steady_producer import SteadyProducer
from tests.support.transactional_load import TransactionalLoad
from tests.support.whole_topic import read_all

TOPIC, COMMITTED, GROUP = "steady", "committed", "readers"
LONGEST_S = 20.0
"""How long a record may wait, on a machine that does other work, too."""
RULE = AclBinding(
    ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
SAME_RULE = AclBindingFilter(
    ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
CREDENTIAL = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    made = ClusterInProcess(
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:ANONYMOUS",
        transaction_state_log_num_partitions="2",
    )
    for number in (1, 2, 3):  # with ports that stay
        made.own[number] = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with made as started:
        yield started


def give_controllers(cluster: ClusterInProcess) -> None:
    """Have each broker move at its next start, as a controller of the quorum to come."""
    quorum = addresses(*cluster.own)
    for number, own in cluster.own.items():
        own |= {
            "process.roles": "broker,controller",
            "listeners": f"{own['listeners']},CONTROLLER://{quorum[number].endpoint}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.quorum.voters": static_voters(quorum),
            "zookeeper.metadata.migration.enable": "true",
        }


def restart(cluster: ClusterInProcess, number: int) -> None:
    cluster.stop(number)
    cluster.start(number)


def share(cluster: ClusterInProcess, number: int, sock: socket.socket) -> None:
    """As `ottla serve --cores` shares its bootstrap port."""
    sock.setblocking(False)

    async def accept() -> None:
        cluster.brokers[number].share({"PLAINTEXT": [sock]})

    cluster.run(accept())


def until_shown(cluster: ClusterInProcess, remark: str) -> None:
    """Wait until `ottla quorum status` shows it; the leader alone knows it."""

    def is_shown() -> bool:
        for own in cluster.own.values():
            with Admin(own["listeners"].rpartition("://")[2]) as admin, suppress(ClientError):
                if remark in admin.describe_quorum().remark:
                    return True
        return False

    eventually(is_shown, timeout_s=60)


def all_is_synced(cluster: ClusterInProcess) -> bool:
    logs = [part.log for broker in cluster.brokers.values() for part in broker.replicas.partitions()]
    return len(logs) >= 9 and all(log.recovery_point == log.log_end_offset for log in logs)


def has_moved(cluster: ClusterInProcess, number: int) -> bool:
    return (cluster.directory / str(number) / LEFT).exists()


def commit_offset(cluster: ClusterInProcess) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})

    def committed() -> bool:
        """Not while the coordinator begins."""
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        except KafkaException:
            return False
        return True

    eventually(committed, timeout_s=60)
    consumer.close()


def committed_offset(cluster: ClusterInProcess) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def test_a_cluster_moves_while_producers_write(cluster: ClusterInProcess) -> None:
    cluster.create(TOPIC, [[1, 2, 3], [2, 3, 1]], retention_ms="86400001")
    cluster.create(COMMITTED, [[3, 1, 2]])
    admin: Any = cluster.admin()
    admin.create_acls([RULE])[RULE].result(30)
    admin.alter_user_scram_credentials([CREDENTIAL])["alice"].result(30)
    commit_offset(cluster)
    give_controllers(cluster)
    with (
        socket.create_server(("127.0.0.1", 0)) as shared,
        SteadyProducer(cluster.bootstrap, TOPIC, **{"enable.idempotence": True}) as producer,
        TransactionalLoad(cluster.bootstrap, COMMITTED, 1) as load,
    ):
        producer.until_acknowledged(20)
        for number in (1, 2, 3):
            if number == 3:
                until_shown(cluster, "waits, since broker 3 was started without the settings of the quorum")
            restart(cluster, number)
            began = time.monotonic()
        share(cluster, 1, shared)
        eventually(lambda: all(has_moved(cluster, number) for number in (1, 2, 3)), timeout_s=60)
        producer.until_acknowledged(50)
        done = len(load.committed())
        eventually(lambda: len(load.committed()) > done, timeout_s=60)
        with Connection(Address("127.0.0.1", shared.getsockname()[1]), client_id="test", timeout_s=60) as connection:
            assert len(connection.ask(MetadataRequest(topics=[])).brokers) == 3
    print(f"the move itself: longest wait of a record {producer.longest_wait_s(began):.2f} s")
    assert not producer.failed
    assert producer.longest_wait_s(began) < LONGEST_S
    acknowledged = [value for _, value in producer.acknowledged]
    assert sorted(read_all(cluster.bootstrap, TOPIC, len(acknowledged))) == sorted(acknowledged)
    committed = load.committed()
    assert sorted(read_all(cluster.bootstrap, COMMITTED, len(committed))) == sorted(committed)

    assert all(broker.replicas.directories.stayed_open for broker in cluster.brokers.values())
    eventually(lambda: all_is_synced(cluster), timeout_s=60)  # what was open and not synced, too
    until_shown(cluster, "restart the nodes, one after another, without zookeeper.connect")

    # Everything is there, and can be changed by way of the new controllers.
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    admin = cluster.admin()
    assert admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == "86400001"
    assert admin.describe_acls(SAME_RULE).result(30) == [RULE]
    assert admin.describe_user_scram_credentials(["alice"])["alice"].result(30).scram_credential_infos
    assert committed_offset(cluster) == 7
    cluster.create("later", [[2, 1, 3]])
    cluster.produce("later", [b"a", b"b"])

    # A start with the same settings does not need ZooKeeper. A broker with ZooKeeper alone is refused.
    nodes, cluster.tree.nodes = cluster.tree.nodes, {}
    restart(cluster, 3)
    cluster.produce("later", [b"c"])
    cluster.tree.nodes = nodes
    cluster.stop(1)
    listeners = cluster.own[1]["listeners"]
    cluster.own[1] = {"listeners": listeners.partition(",")[0]}
    with pytest.raises(InvalidConfig, match="this cluster has moved to its own controllers"):
        cluster.start(1)
