"""The hardened broker of docs/security.md: it starts as it stands there, and lets nobody in without a right."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.probe import free_port
from tools.docs.markdown import ROOT, blocks

from ottla.cli.app import run

PASSWORD, OTHER = "of-the-administrator", "of-the-shop"


class Hardened:
    """A process with the page's file; its places are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        properties, secrets = [
            each.text for each in blocks((ROOT / "docs" / "security.md").read_text(encoding="utf-8"), "properties")
        ]
        replaced = {
            "0.0.0.0:9093": self.address,
            "kafka.example:9093": self.address,
            "127.0.0.1:9094": f"127.0.0.1:{free_port()}",
            "/var/lib/ottla": str(directory / "data"),
            "/var/log/ottla": str(directory),
            "/etc/ottla": str(directory),
        }
        for before, after in replaced.items():
            assert before in properties, "the page has another file than this test"
            properties = properties.replace(before, after)
        (directory / "secrets.properties").write_text(secrets.replace("change-me", PASSWORD))
        (directory / "server.properties").write_text(properties)
        authority = Authority()
        authority.write(directory / "ca.pem")
        authority.write(directory / "brokers-authority.pem")
        authority.issue("broker").write_pem(directory / "broker.pem")
        self.log = directory / "broker.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", "serve", str(directory / "server.properties")],
                stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, user: str, password: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            **more,
        }

    def answers(self, settings: dict[str, Any]) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            return bool(AdminClient(settings).list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    running = Hardened(tmp_path_factory.mktemp("hardened"))
    try:
        eventually(lambda: running.answers(running.client("admin", PASSWORD)), timeout_s=60)
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": "a guess"},
        {"sasl.username": "nobody"},
        {"sasl.mechanism": "PLAIN"},
        {"security.protocol": "SSL"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"security.protocol": "PLAINTEXT"},
    ],
)
def test_nobody_comes_in_without_a_password(broker: Hardened, wrong: dict[str, str]) -> None:
    settings = broker.client("admin", PASSWORD) | wrong
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=1.5)


def test_a_user_may_do_what_rules_allow_and_no_more(broker: Hardened, tmp_path: Path) -> None:
    admin = AdminClient(broker.client("admin", PASSWORD))
    admin.create_topics([NewTopic("orders", 1, 1), NewTopic("salaries", 1, 1)])["orders"].result(30)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change: Any = UserScramCredentialUpsertion("shop", scram, OTHER.encode())
    admin.alter_user_scram_credentials([change])["shop"].result(30)
    properties = tmp_path / "admin.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in broker.client("admin", PASSWORD).items()))
    at = ["--bootstrap", broker.address, "--command-config", str(properties)]
    assert run(["acl", "grant", "producer", "shop", "--topic", "orders", *at]) == 0
    shop = AdminClient(broker.client("shop", OTHER))
    assert set(shop.list_topics(timeout=30).topics) == {"orders"}, "what it may not describe does not exist for it"
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        shop.create_topics([NewTopic("more", 1, 1)])["more"].result(30)
    outcomes: dict[str, Any] = {}
    producer = Producer(
        broker.client("shop", OTHER, **{"message.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 300})
    )
    for topic in ("orders", "salaries"):
        producer.produce(topic, b"x", callback=lambda error, message: outcomes.update({str(message.topic()): error}))
    assert producer.flush(60) == 0
    assert outcomes["orders"] is None
    assert outcomes["salaries"] is not None


def test_no_secret_is_in_its_log_its_audit_log_its_data_or_the_list_of_processes(broker: Hardened) -> None:
    seen = [broker.log.read_bytes(), (broker.directory / "audit.log").read_bytes()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen.append((process / "cmdline").read_bytes())
        except OSError:  # it has ended
            continue
    seen += [path.read_bytes() for path in (broker.directory / "data").rglob("*") if path.is_file()]
    assert len(seen) > 5
    for secret in (PASSWORD, OTHER, "a-long-random-text", "a guess"):
        assert not [text[:200] for text in seen if secret.encode() in text]
