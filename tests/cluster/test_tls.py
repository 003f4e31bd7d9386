"""Brokers that speak TLS with each other, each with a certificate that the others ask for."""

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.ottla_cluster import OttlaCluster
from tests.support.probe import free_port
from tests.support.zookeeper import ZooKeeperServer

RECORDS = 2000


def encrypted_cluster(connect: str, directory: Path) -> tuple[OttlaCluster, dict[int, str]]:
    """A cluster whose brokers have one more listener, for each other and for clients with certificates."""
    authority = Authority()
    ca = authority.write(directory / "ca.pem")
    authority.issue("client").write_pem(directory / "client.pem")
    cluster = OttlaCluster(connect, controller=1)
    addresses = {}
    for number, broker in cluster.brokers.items():
        addresses[number] = f"127.0.0.1:{free_port()}"
        store = authority.issue(f"broker-{number}").write_pem(directory / f"{number}.pem")
        broker.properties.update(
            {
                "listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://{addresses[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL",
                "inter.broker.listener.name": "BROKERS",
                "listener.name.brokers.ssl.client.auth": "required",
                "listener.name.brokers.ssl.keystore.type": "PEM",
                "listener.name.brokers.ssl.keystore.location": str(store),
                "listener.name.brokers.ssl.truststore.type": "PEM",
                "listener.name.brokers.ssl.truststore.location": str(ca),
            }
        )
    return cluster, addresses


def test_replication_transactions_and_elections_over_tls(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    cluster, addresses = encrypted_cluster(f"{zookeeper.connect}/{uuid4()}", tmp_path)
    with cluster:
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(addresses.values()),
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "client.pem"),
            "ssl.key.location": str(tmp_path / "client.pem"),
        }
        admin = AdminClient(settings)
        topic = NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["orders"].result(30)
        producer = Producer(settings | {"transactional.id": "encrypted", "transaction.timeout.ms": 60_000})
        producer.init_transactions(30)
        for begin in range(0, RECORDS, 500):
            producer.begin_transaction()
            for number in range(begin, begin + 500):
                producer.produce("orders", b"%05d" % number + b"x" * 500, key=b"%d" % number)
            if begin == 1000:
                cluster.brokers[2].kill()  # what it led is led by others, and read by the one that comes back
            producer.commit_transaction(60)
        cluster.brokers[2].start()
        cluster.until_in_sync("orders", 1, 2, 3)
        consumer = Consumer(
            settings | {"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        )
        consumer.subscribe(["orders"])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(values) < RECORDS and time.monotonic() < deadline:
            values += [message.value() or b"" for message in consumer.consume(1000, 1.0) if not message.error()]
        consumer.close()
        assert sorted(values) == [b"%05d" % number + b"x" * 500 for number in range(RECORDS)]


def test_a_broker_without_a_trusted_certificate_takes_no_part(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    cluster, _ = encrypted_cluster(f"{zookeeper.connect}/{uuid4()}", tmp_path)
    Authority("stranger").issue("broker-3").write_pem(tmp_path / "3.pem")
    stranger = cluster.brokers.pop(3)
    with cluster:
        stranger.start(wait=False)
        try:
            eventually(lambda: "client does not trust the certificate of this broker" in stranger.log_text())
            assert not stranger.answers()  # no controller has reached it
            eventually(lambda: "its certificate is not trusted" in cluster.brokers[1].log_text())
            cluster.create("orders", replicas=2)
        finally:
            stranger.kill()
