"""Brokers that log in to each other by Kerberos and by tokens, and go on doing so when logins end."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer

from tests.support.eventually import eventually
from tests.support.identity_provider import IdentityProvider
from tests.support.kerberos import Realm, key_line
from tests.support.ottla_cluster import OttlaCluster
from tests.support.probe import free_port
from tests.support.token_endpoint import CLIENT, TokenEndpoint
from tests.support.zookeeper import ZooKeeperServer

PREFIX = "listener.name.brokers."
SERVICE = "kafka/localhost"


def cluster_with(connect: str, mechanism: str, properties: Mapping[str, str]) -> OttlaCluster:
    """Two brokers that reach each other at `localhost`, where one has to log in."""
    cluster = OttlaCluster(connect, brokers=2, controller=1)
    for broker in cluster.brokers.values():
        port = free_port()
        broker.properties.update(
            {
                "listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://{broker.bootstrap},BROKERS://localhost:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "sasl.enabled.mechanisms": mechanism,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                **properties,
            }
        )
    return cluster


def replicate(cluster: OttlaCluster, count: int) -> None:
    """Records that both brokers have."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            "orders", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert not failures


def test_brokers_log_in_by_kerberos(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with Realm(tmp_path) as realm:
        line = key_line(realm.add(SERVICE, maxlife="4 seconds"), SERVICE)
        properties = {
            f"{PREFIX}gssapi.sasl.jaas.config": line,
            f"{PREFIX}gssapi.connections.max.reauth.ms": "2000",
            "sasl.kerberos.service.name": "kafka",
        }
        cluster = cluster_with(f"{zookeeper.connect}/{uuid4()}", "GSSAPI", properties)
        for broker in cluster.brokers.values():
            broker.environment.update(realm.environment)
        with cluster:
            cluster.create("orders", replicas=2)
            replicate(cluster, 500)
            cluster.brokers[2].kill()
            cluster.brokers[2].start()
            cluster.until_in_sync("orders", 1, 2)
            eventually(lambda: realm.tickets_given(SERVICE) >= 5, timeout_s=30)  # those before have expired
            replicate(cluster, 500)
            assert cluster.in_sync("orders") == {1, 2}


def test_brokers_log_in_with_tokens_that_expire(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    provider = IdentityProvider()
    keys = provider.write(tmp_path / "keys.json")
    with TokenEndpoint(provider, life_s=4) as endpoint:
        properties = {
            f"{PREFIX}oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT[0],
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT[1],
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.audience": "ottla",
        }
        cluster = cluster_with(f"{zookeeper.connect}/{uuid4()}", "OAUTHBEARER", properties)
        with cluster:
            cluster.create("orders", replicas=2)
            replicate(cluster, 500)
            eventually(lambda: len(endpoint.given) >= 4, timeout_s=30)
            replicate(cluster, 500)
            assert cluster.in_sync("orders") == {1, 2}
            assert set(endpoint.given) == {"kafka"}
            assert not endpoint.refused
            assert not any(CLIENT[1] in broker.log_text() for broker in cluster.brokers.values())
