"""The hardened broker of docs/security.md: it starts as it stands there, and lets nobody in without a right."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from ottla.connect.rest.client import Access, RestError, ask, basic

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


def test_a_worker_keeps_its_secrets(broker: Hardened, tmp_path: Path) -> None:
    """A worker that logs in, with a connector whose target repeats its token in a refusal."""
    token, rest_password = "token-of-a-webhook", "of-the-connectors"

    class Echo(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401, f"not {self.headers['Authorization']}")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\ntoken={token}\n")
    (tmp_path / "users").write_text(f"alice={rest_password}\n")
    url = f"http://127.0.0.1:{free_port()}"
    settings = broker.client("admin", f"${{file:{secrets}:password}}") | {
        "group.id": "secured",
        "listeners": url,
        "rest.users.file": str(tmp_path / "users"),
        "http.allowed.targets": "127.0.0.1",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(secrets),
        **{f"{what}.storage.replication.factor": "1" for what in ("config", "offset", "status")},
    }
    settings.pop("log_level")
    (tmp_path / "worker.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    access = Access(basic("alice", rest_password))
    command = [
        sys.executable,
        "-m",
        "ottla.cli.main",
        "connect",
        "serve",
        "--config",
        str(tmp_path / "worker.properties"),
    ]
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Echo) as target,
        (tmp_path / "worker.log").open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as worker,
    ):
        threading.Thread(target=target.serve_forever, daemon=True).start()
        try:

            def state() -> Any:
                assert worker.poll() is None, (tmp_path / "worker.log").read_text()
                try:
                    return ask(url, "GET", "/connectors/hook/status", within_s=30, access=access)
                except RestError:  # it does not exist yet
                    put(url, access, f"http://127.0.0.1:{target.server_port}", f"${{file:{secrets}:token}}")
                except OSError:
                    return None

            def failed() -> Any:
                status = state()
                return status if status and [each["state"] for each in status["tasks"]] == ["FAILED"] else None

            status = eventually(failed, timeout_s=60)
            assert "answered 401 not [hidden]" in status["tasks"][0]["trace"]
            seen = [str(status).encode(), *command_lines()]
            seen.append(str(ask(url, "GET", "/connectors/hook", within_s=30, access=access)).encode())
            seen.append(str(ask(url, "GET", "/connectors/hook/logs", within_s=30, access=access)).encode())
        finally:
            target.shutdown()
            worker.terminate()
    seen.append((tmp_path / "worker.log").read_bytes())
    seen += stored(broker)
    for secret in (PASSWORD, token, rest_password):
        assert not [text[:200] for text in seen if secret.encode() in text]


def put(url: str, access: Access, target: str, token: str) -> None:
    config = {"connector.class": "http-source", "topic": "hooks", "http.url": target, "http.authorization": token}
    with suppress(OSError, RestError):  # it is not ready yet
        ask(url, "PUT", "/connectors/hook/config", config, within_s=60, access=access)


def command_lines() -> list[bytes]:
    """Of all processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            found.append((process / "cmdline").read_bytes())
    return found


def stored(broker: Hardened) -> list[bytes]:
    """All that the broker has written, as it lies there."""
    return [path.read_bytes() for path in (broker.directory / "data").rglob("*") if path.is_file()]


def test_no_secret_is_in_its_log_its_audit_log_its_data_or_the_list_of_processes(broker: Hardened) -> None:
    seen = [broker.log.read_bytes(), (broker.directory / "audit.log").read_bytes()]
    seen += command_lines() + stored(broker)
    assert len(seen) > 5
    for secret in (PASSWORD, OTHER, "a-long-random-text", "a guess"):
        assert not [text[:200] for text in seen if secret.encode() in text]
