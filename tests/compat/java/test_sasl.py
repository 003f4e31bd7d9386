"""Kafka's own tool that sets passwords, and its clients that log in with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.genuine import ToolFailedError
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.tool_server import kafka_tool

MODULES = "org.apache.kafka.common.security"
LINES = [f"{number}" for number in range(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[OttlaProcess, str]]:
    running = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    running.properties.update(
        {
            "listeners": f"PLAINTEXT://{running.bootstrap},SASL_PLAINTEXT://{address}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_alice="wonderland";'
            ),
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
        }
    )
    with running:
        yield running, address


def client_config(directory: Path, mechanism: str, user: str, password: str) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = directory / "client.properties"
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULES}.{module} required username="{user}" password="{password}";\n'
    )
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "wonderland"),
        ("SCRAM-SHA-256", "bob,=", "pencil"),
        ("SCRAM-SHA-512", "carol*", "looking glass"),
    ],
)
def test_users_of_the_tool_log_in_and_renew_their_logins(
    broker: tuple[OttlaProcess, str], tmp_path: Path, mechanism: str, user: str, password: str
) -> None:
    running, address = broker
    if mechanism != "PLAIN":
        credential = f"{mechanism}=[iterations=8192,password={password}]"
        who = ("--entity-type", "users", "--entity-name", user)
        plain = ("--bootstrap-server", running.bootstrap)
        kafka_tool("ConfigCommand", *plain, "--alter", *who, "--add-config", credential)
    config = client_config(tmp_path, mechanism, user, password)
    at = ("--bootstrap-server", address, "--topic", mechanism, "--command-config", config)
    kafka_tool("ConsoleProducer", *at, stdin="".join(f"{line}\n" for line in LINES))
    # the consumer waits longer than a login lasts, and renews its own (KIP-368)
    received = kafka_tool("ConsoleConsumer", *at, "--from-beginning", "--timeout-ms", "7000")
    assert received.stdout.splitlines() == LINES
    assert "has not authenticated" not in running.log_text()


def test_a_wrong_password_is_refused_in_the_words_of_kafka(broker: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    running, address = broker
    for mechanism, why in (
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
    ):
        config = client_config(tmp_path, mechanism, "alice", "wrong")
        with pytest.raises(ToolFailedError, match=why):
            kafka_tool("TopicCommand", "--bootstrap-server", address, "--command-config", config, "--list")
    assert "wonderland" not in running.log_text()
