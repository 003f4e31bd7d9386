"""A worker, its connectors' own logins, and a mirror between two clusters that are protected differently."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Broker, ConnectWorker
from tests.support.eventually import eventually

PASSWORDS = {"worker": "worker's-pencil-1", "mirror": "mirror's-pencil-2", "sink": "sink's-pencil-3"}
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
WORKER_RIGHTS = [
    *("all topic connect-*", "all topic far.*", "all group *", "write cluster kafka-cluster", "all transactional-id *"),
    *("describe topic *", "describe cluster kafka-cluster"),
]


@pytest.fixture(scope="module")
def far() -> Iterator[Broker]:
    """Asks for certificates."""
    rights = ["read topic orders", "describe_configs topic orders", "describe group mirror-mirror"]
    with Broker(tls="required", acls={"mirror": rights}) as broker:
        producer = Producer(broker.client_config("admin"))
        for number in range(10):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        yield broker


@pytest.fixture(scope="module")
def near() -> Iterator[Broker]:
    """Asks for passwords."""
    users = {"worker": PASSWORDS["worker"], "sink": PASSWORDS["sink"]}
    acls = {"worker": WORKER_RIGHTS, "sink": ["read topic far.orders", "read group connect-files"]}
    with Broker(tls=True, users=users, acls=acls) as broker:
        yield broker


def login(user: str) -> str:
    return f'{MODULE} required username="{user}" password="{PASSWORDS[user]}";'


def test_records_go_from_one_cluster_to_the_other_and_to_a_file(
    far: Broker, near: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"line={login('sink')}\n")
    monkeypatch.setenv("WORKER_LINE", login("worker"))
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "${env:WORKER_LINE}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": near.client_config("worker")["ssl.ca.location"],
    }
    there = far.client_config("mirror")
    mirror = {
        "connector.class": "mirror-source",
        "topics": "orders",
        "source.cluster.alias": "far",
        "source.cluster.bootstrap.servers": far.bootstrap,
        "source.cluster.security.protocol": "SSL",
        "source.cluster.ssl.truststore.location": there["ssl.ca.location"],
        "source.cluster.ssl.keystore.location": there["ssl.key.location"],
    }
    out = tmp_path / "out"
    files = {
        "connector.class": "file-sink",
        "topics": "far.orders",
        "path": str(out),
        "flush.size": "10",
        "rotate.interval.ms": "200",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "consumer.override.sasl.jaas.config": "${file:" + f"{secrets}:line" + "}",
    }
    with ConnectWorker(near.bootstrap, settings) as worker:
        worker.put("mirror", mirror)
        worker.wait("mirror", "RUNNING")
        consumer = Consumer({**near.client_config("admin"), "group.id": "t", "auto.offset.reset": "earliest"})
        consumer.subscribe(["far.orders"])
        found: list[bytes | None] = []

        def all_came() -> bool:
            found.extend(each.value() for each in consumer.consume(10, 1) if each.error() is None)
            return len(found) >= 10

        eventually(all_came)
        consumer.close()
        worker.put("files", files)
        worker.wait("files", "RUNNING")
        eventually(lambda: sum(len(each.read_text().splitlines()) for each in out.rglob("*") if each.is_file()) >= 10)
        worker.put("files", {**files, "consumer.override.sasl.jaas.config": login("sink").replace("pencil", "wrong")})
        failed = worker.wait("files", "FAILED")
        shown = [json.dumps(worker.request("GET", f"/connectors/{name}/status")) for name in ("mirror", "files")]
        assert "authentic" in json.dumps(failed).lower()
    assert found == [b"%d" % number for number in range(10)]
    for text in (*shown, caplog.text):
        assert not any(password in text for password in PASSWORDS.values())
        assert "sink's-wrong-3" not in text
