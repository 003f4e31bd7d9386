"""Two workers with TLS and logins at their REST APIs: roles, forwarding, commands, and secrets that stay secret."""

import logging
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from cryptography.x509 import load_der_x509_certificate

from ottla import impatience
from ottla.cli.app import run
from ottla.connect.errors import ConfigError
from ottla.connect.rest import app, server
from ottla.connect.rest.client import Access, RestError, ask, basic, bearer, trusting
from ottla.connect.rest.passwords import hashed, is_right
from ottla.connect.rest.server import Server
from ottla.connect.runtime.worker_settings import worker_settings
from ottla.testing import Broker, ConnectWorker
from tests.support.certificates import Authority
from tests.support.connect import messages_of
from tests.support.eventually import eventually
from tests.support.identity_provider import IdentityProvider

ADMIN, READER = "admin-of-connect", "reader-of-connect"
NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n", "count": "1"}
TOPICS = ("offset.storage.topic", "status.storage.topic")


class Group(NamedTuple):
    broker: Broker
    workers: list[ConnectWorker]
    authority: Authority
    directory: Path
    provider: IdentityProvider

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def access(self, authorization: str | None) -> Access:
        return Access(authorization, trusting(self.ca))

    def status(self, authorization: str | None, method: str, path: str, worker: int = 0) -> int:
        try:
            ask(self.workers[worker].url, method, path, within_s=60, access=self.access(authorization))
        except RestError as refused:
            return refused.status
        return 200


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    directory = tmp_path_factory.mktemp("rest")
    authority, provider = Authority(), IdentityProvider()
    authority.write(directory / "ca.pem")
    authority.issue("worker").write_pem(directory / "worker.pem")
    (directory / "users").write_text(f"admin={hashed(ADMIN)}\nreader={READER}\n")
    settings = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.keystore.location": str(directory / "worker.pem"),
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.location": str(directory / "ca.pem"),
        "rest.users.file": str(directory / "users"),
        "rest.admin.users": "admin, robot",
        "rest.oauthbearer.jwks.endpoint.url": provider.write(directory / "keys.json").as_uri(),
        "rest.oauthbearer.expected.audience": "connect",
    }
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(impatience, "FIRST_REQUEST_S", 2.0)
        patch.setattr(server, "CHECK_INTERVAL_S", 0.1)
        broker = running.enter_context(Broker())
        workers = []
        for _ in range(2):
            worker = ConnectWorker(broker.bootstrap, settings)
            worker.access = Access(basic("admin", ADMIN), trusting(str(directory / "ca.pem")))
            workers.append(running.enter_context(worker))
        yield Group(broker, workers, authority, directory, provider)


def test_nothing_is_served_without_a_login(group: Group) -> None:
    routes = [("/", "GET"), ("/health", "GET"), ("/connectors/x/logs", "GET"), ("/nowhere", "GET")]
    routes += [(path, method) for path, method, _ in app._ROUTES]
    for path, method in routes:
        path = path.format(name="x", task=0, plugin="http-source", logger="root")
        assert group.status(None, method, path) == 401, path
        assert group.status(None, "OPTIONS", path) == 401, path
        if method != "GET":
            assert group.status(basic("reader", READER), method, path) == 403, path
    with pytest.raises(RestError) as refused:
        ask(group.workers[0].url, "GET", "/connectors", within_s=60, access=group.access(None))
    assert refused.value.body == {"error_code": 401, "message": "User cannot access the resource."}


def test_changes_are_passed_on_with_the_login_of_their_user(group: Group) -> None:
    """Both workers take them, and one of them leads."""
    for number, worker in enumerate(group.workers):
        worker.put(f"passed-{number}", NUMBERS)
        worker.wait(f"passed-{number}", "RUNNING")
        worker.request("POST", f"/connectors/passed-{number}/restart")
    robot = group.access(bearer(group.provider.token("robot", aud="connect")))
    for worker in group.workers:
        body = {"level": "INFO"}
        ask(worker.url, "PUT", "/admin/loggers/tests.rest?scope=cluster", body, within_s=60, access=robot)
        ask(worker.url, "PATCH", "/connectors/passed-0/config", {"count": "2"}, within_s=60, access=robot)
        assert {"passed-0", "passed-1"} <= set(worker.request("GET", "/connectors"))
    token = bearer(group.provider.token("somebody", aud="connect"))
    assert group.status(token, "GET", "/connectors") == 200
    assert group.status(token, "DELETE", "/connectors/passed-0") == 403


def test_readers_see_no_passwords(group: Group) -> None:
    config = {**NUMBERS, "producer.override.sasl.password": "in plain text", "topic": "${env:HOME}"}
    group.workers[0].put("plain", config)
    group.workers[0].request("PUT", "/connectors/plain/stop")
    for path in ("/connectors/plain", "/connectors/plain/config", "/connectors?expand=info", "/connectors/plain/tasks"):
        shown = str(ask(group.workers[1].url, "GET", path, within_s=60, access=group.access(basic("reader", READER))))
        assert "in plain text" not in shown
    assert group.workers[1].request("GET", "/connectors/plain/config")["producer.override.sasl.password"] == (
        "in plain text"
    ), "as in Kafka, to those who may change it"
    group.workers[0].request("DELETE", "/connectors/plain")


def test_commands_log_in(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = group.workers[0].url
    password = tmp_path / "password"
    password.write_text(f"{ADMIN}\n")
    at = ["--url", url, "--cacert", group.ca]
    group.workers[0].put("asked-about", NUMBERS)
    group.workers[0].wait("asked-about", "RUNNING")
    assert run(["connect", "list", *at, "--user", "admin", "--password-file", str(password)]) == 0
    monkeypatch.setenv("OTTLA_CONNECT_USER", "reader")
    monkeypatch.setenv("OTTLA_CONNECT_PASSWORD", READER)
    assert run(["connect", "list", *at]) == 0
    assert run(["connect", "pause", "asked-about", *at]) == 1
    assert "reader may only read: rest.admin.users" in capsys.readouterr().err
    monkeypatch.setenv("OTTLA_CONNECT_PASSWORD", "wrong one")
    assert run(["connect", "list", *at]) == 1
    assert "refuses this login; check the name" in capsys.readouterr().err
    monkeypatch.delenv("OTTLA_CONNECT_USER")
    assert run(["connect", "list", *at]) == 1
    assert "refuses this login; name a user with --user" in capsys.readouterr().err
    monkeypatch.setenv("OTTLA_CONNECT_TOKEN", group.provider.token("robot", aud="connect"))
    assert run(["connect", "logs", "asked-about", *at]) == 0
    assert run(["connect", "list", "--url", url]) == 1
    assert "TLS fails (self-signed certificate in certificate chain); name" in capsys.readouterr().err
    assert run(["connect", "list", "--user", "admin:secret"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_passwords_are_hashed_from_a_pipe() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "connect", "hash-password"],
        input="correct horse\n", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert is_right(made, "correct horse")


def connected(group: Group) -> ssl.SSLSocket:
    host, port = group.workers[0].url.removeprefix("https://").split(":")
    plain = socket.create_connection((host, int(port)), 60)
    return trusting(group.ca).wrap_socket(plain, server_hostname=host)


def test_replaced_certificates_are_used_without_a_restart(group: Group) -> None:
    def name() -> str:
        with connected(group) as found:
            shown = found.getpeercert(binary_form=True)
            assert shown is not None
            return load_der_x509_certificate(shown).subject.rfc4514_string()

    assert name() == "CN=worker"
    with connected(group) as before:
        (group.directory / "worker.pem").write_text("no certificate")
        group.authority.issue("renewed").write_pem(group.directory / "next.pem")
        os.replace(group.directory / "next.pem", group.directory / "worker.pem")
        eventually(lambda: name() == "CN=renewed")
        before.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert before.recv(12) == b"HTTP/1.1 401"


def test_a_connection_that_asks_for_nothing_is_closed(group: Group) -> None:
    with connected(group) as silent, connected(group) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""


def test_what_only_reads_has_no_body_that_is_read(group: Group) -> None:
    """Eight megabytes of JSON took the worker seconds, and any user may read."""
    with connected(group) as reader:
        login = basic("reader", READER)
        reader.sendall(
            f"GET /connectors HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n"
            "Content-Length: 100000000000\r\n\r\n[".encode()
        )
        assert reader.recv(12) == b"HTTP/1.1 200"
    for path, status in (("/connectors/x/logs?lines=", 400), ("/connectors/x/tasks/", 404)):
        digits = "9" * 5000
        tail = "/status" if "tasks" in path else ""
        assert group.status(basic("reader", READER), "GET", f"{path}{digits}{tail}") == status


def test_a_connection_whose_next_request_does_not_come_to_its_end_is_closed(group: Group) -> None:
    with connected(group) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 401")
        slow.sendall(b"G")
        slow.settimeout(30)
        while slow.recv(4096):
            pass


def test_a_body_is_not_read_before_the_login_and_not_without_end(group: Group) -> None:
    with connected(group) as guest:
        guest.sendall(b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000000\r\n\r\n")
        assert guest.recv(12) == b"HTTP/1.1 401"
    login = basic("admin", ADMIN)
    with connected(group) as admin:
        admin.sendall(
            f"POST /connectors HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n"
            "Content-Length: 9000000\r\n\r\n".encode()
        )
        assert admin.recv(12) == b"HTTP/1.1 413"
    with connected(group) as admin:
        admin.sendall(
            f"POST /connectors HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        admin.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n" + b"800000\r\n" + bytes((7 << 20) + 1))
        assert admin.recv(12) == b"HTTP/1.1 413"


def test_secrets_are_in_no_log_topic_status_or_answer(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connector that fails with its password in its error; passwords of clients; of users, guessed and right."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CONNECTOR_PASSWORD", "sesame-of-the-connector")
    producer = Producer({"bootstrap.servers": group.broker.bootstrap})
    producer.produce("secrets", b"{}")
    assert producer.flush(20) == 0
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="jaas-sesame";'
    config = {
        "connector.class": "tests.connect.connectors.Fragile",
        "topics": "secrets",
        "password": "${env:CONNECTOR_PASSWORD}",
        "fail": "bug",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "value.converter.basic.auth.user.info": "converter-sesame",
        "errors.tolerance": "none",
        "admin.override.sasl.password": "client-sesame",
    }
    group.workers[0].put("secrets", config)
    group.workers[0].wait("secrets", "FAILED")
    bad = {**config, "admin.override.sasl.jaas.config": jaas, "fail": "config"}
    with pytest.raises(RestError) as refused:
        group.workers[0].put("worse", bad)
    assert group.status(basic("admin", "guessed-sesame"), "GET", "/") in (401, 429)
    seen: list[Any] = [refused.value.body, caplog.text]
    paths = ("/connectors?expand=info&expand=status", "/connectors/secrets/logs", "/connectors/secrets/tasks",
             "/connectors/secrets/progress")  # fmt: skip
    for worker in group.workers:
        access = group.access(basic("reader", READER))
        seen += [ask(worker.url, "GET", path, within_s=60, access=access) for path in paths]
        seen.append(worker.request("GET", "/connectors/secrets/status"))
    for setting in TOPICS:
        topic = worker_settings({}).model_dump(by_alias=True)[setting]
        seen.append([(each.key(), each.value()) for each in messages_of(group.broker.bootstrap, topic, 0)])
    seen.append(Path("/proc/self/cmdline").read_text())
    text = str(seen)
    assert "no idea what [hidden] is for" in text
    for secret in ("sesame", ADMIN, READER):
        assert secret not in text, text[max(0, text.index(secret) - 300) : text.index(secret) + 50]


def test_a_start_without_protection_is_refused() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "offset.storage.file.filename": "/tmp/none"}
    with pytest.raises(ConfigError, match=r"ask for a login"):
        Server({**settings, "listeners": "http://0.0.0.0:0"})
    with pytest.raises(ConfigError, match=r"needs a key and a certificate: set ssl.keystore.location"):
        Server({**settings, "listeners": "https://127.0.0.1:0"})
