"""Kafka's own tool for delegation tokens, and clients that log in with one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.genuine import ToolFailedError
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.tool_server import kafka_tool

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LINES = [f"{number}" for number in range(100)]
_ALL_LINES = ("--max-messages", str(len(LINES)), "--timeout-ms", "30000")


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[OttlaProcess, str]]:
    running = OttlaProcess()
    address = f"127.0.0.1:{free_port()}"
    running.properties.update(
        {
            "listeners": f"PLAINTEXT://{running.bootstrap},SASL_PLAINTEXT://{address}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "initial.scram.users": "SCRAM-SHA-256=[name=alice,password=a],SCRAM-SHA-256=[name=bob,password=b]",
            "delegation.token.secret.key": "wonderland",
            "delegation.token.expiry.check.interval.ms": "500",
        }
    )
    with running:
        yield running, address


def client_config(directory: Path, user: str, password: str, *, is_token: bool = False, mechanism: str = "256") -> str:
    path = directory / f"{user}.properties"
    token = ' tokenauth="true"' if is_token else ""
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-{mechanism}\n"
        f'sasl.jaas.config={MODULE} username="{user}" password="{password}"{token};\n'
    )
    return str(path)


def tool(address: str, config: str, *arguments: str) -> str:
    at = ("--bootstrap-server", address, "--command-config", config)
    return kafka_tool("DelegationTokenCommand", *at, *arguments).stdout


def created(output: str) -> tuple[str, str]:
    """Id and secret of the token in the tool's table."""
    found = re.search(r"^(\S{22})\s+(\S{80,})\s+User:", output, re.MULTILINE)
    assert found is not None, output
    return found.group(1), found.group(2)


def test_a_token_is_created_used_renewed_and_expired(broker: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    running, address = broker
    alice, bob = (client_config(tmp_path, name, name[0]) for name in ("alice", "bob"))
    output = tool(address, alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, secret = created(output)
    for mechanism in ("256", "512"):
        own = client_config(tmp_path, token_id, secret, is_token=True, mechanism=mechanism)
        at = ("--bootstrap-server", address, "--topic", f"by-token-{mechanism}", "--command-config", own)
        kafka_tool("ConsoleProducer", *at, stdin="".join(f"{line}\n" for line in LINES))
        received = kafka_tool("ConsoleConsumer", *at, "--from-beginning", *_ALL_LINES)
        assert received.stdout.splitlines() == LINES
    with pytest.raises(ToolFailedError, match="not allowed on"):
        tool(address, own, "--create", "--max-life-time-period", "-1")
    assert token_id in tool(address, bob, "--describe", "--owner-principal", "User:alice")
    tool(address, bob, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    running.kill()
    running.start()
    assert token_id in tool(address, alice, "--describe", "--owner-principal", "User:alice")
    tool(address, alice, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in tool(address, alice, "--describe", "--owner-principal", "User:alice")
    with pytest.raises(ToolFailedError, match="invalid credentials"):
        kafka_tool("TopicCommand", "--bootstrap-server", address, "--command-config", own, "--list")
    with pytest.raises(ToolFailedError, match="not found"):
        tool(address, alice, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    assert not any(hidden in running.log_text() for hidden in (secret, "wonderland"))


def test_tokens_of_others_and_wrong_secrets_are_of_no_use(broker: tuple[OttlaProcess, str], tmp_path: Path) -> None:
    _, address = broker
    alice, bob = (client_config(tmp_path, name, name[0]) for name in ("alice", "bob"))
    token_id, secret = created(tool(address, alice, "--create", "--max-life-time-period", "3600000"))
    with pytest.raises(ToolFailedError, match="not valid Owner/Renewer"):
        tool(address, bob, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    attempts: list[dict[str, Any]] = [
        {"user": token_id, "password": "x", "is_token": True},
        {"user": token_id, "password": "x", "is_token": False},  # tokens may come without tokenauth, unlike in Kafka
        {"user": "alice", "password": "a", "is_token": True},
    ]
    for attempt in attempts:
        config = client_config(tmp_path, **attempt)
        with pytest.raises(ToolFailedError, match="invalid credentials"):
            kafka_tool("TopicCommand", "--bootstrap-server", address, "--command-config", config, "--list")
