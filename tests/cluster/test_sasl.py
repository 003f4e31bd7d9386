"""Brokers that log in to each other, and users that are the same at every broker."""

from functools import partial
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.probe import free_port
from tests.support.zookeeper import ZooKeeperServer

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def cluster_with_logins(connect: str, password_of_third: str = "inside") -> tuple[OttlaCluster, dict[int, str]]:
    """A cluster whose brokers have one more listener, for each other and for users."""
    cluster = OttlaCluster(connect, controller=1)
    addresses = {}
    for number, broker in cluster.brokers.items():
        addresses[number] = f"127.0.0.1:{free_port()}"
        own = password_of_third if number == 3 else "inside"
        broker.properties.update(
            {
                "listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://{addresses[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.brokers.plain.sasl.jaas.config": (
                    f'{MODULE} username="broker" password="{own}" user_broker="inside";'
                ),
            }
        )
    return cluster, addresses


def test_replication_between_brokers_that_log_in(zookeeper: ZooKeeperServer) -> None:
    cluster, addresses = cluster_with_logins(f"{zookeeper.connect}/{uuid4()}")
    with cluster:
        admin = cluster.admin()
        mechanism = ScramMechanism.SCRAM_SHA_512
        change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"secret")
        admin.alter_user_scram_credentials([change])["alice"].result(10)

        def settings(broker: int) -> dict[str, Any]:
            return {
                "bootstrap.servers": addresses[broker],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": "secret",
            }

        def is_accepted(broker: int) -> bool:
            client = AdminClient(settings(broker))
            try:
                return bool(client.list_topics(timeout=2).brokers)
            except KafkaException:
                return False

        def is_refused(broker: int) -> bool:
            return not is_accepted(broker)

        for broker in addresses:
            eventually(partial(is_accepted, broker), timeout_s=10)
        admin.create_topics([NewTopic("orders", 3, 3, config={"min.insync.replicas": "2"})])["orders"].result(30)
        producer = Producer(settings(1) | {"acks": "all"})
        for number in range(1000):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        cluster.brokers[2].kill()
        for number in range(1000):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        cluster.brokers[2].start()
        cluster.until_in_sync("orders", 1, 2, 3)
        removal = UserScramCredentialDeletion("alice", mechanism)
        admin.alter_user_scram_credentials([removal])["alice"].result(10)
        for broker in addresses:
            eventually(partial(is_refused, broker), timeout_s=10)


def test_a_broker_with_a_wrong_password_takes_no_part(zookeeper: ZooKeeperServer) -> None:
    cluster, _ = cluster_with_logins(f"{zookeeper.connect}/{uuid4()}", password_of_third="outside")
    cluster.brokers[3].properties["listener.name.brokers.plain.sasl.jaas.config"] = (
        f'{MODULE} username="broker" password="outside" user_broker="other";'
    )
    stranger = cluster.brokers.pop(3)
    with cluster:
        stranger.start(wait=False)
        try:
            eventually(lambda: "Authentication failed" in stranger.log_text())
            assert not stranger.answers()
            eventually(lambda: "Authentication failed" in cluster.brokers[1].log_text())
            cluster.create("orders", replicas=2)
        finally:
            stranger.kill()
