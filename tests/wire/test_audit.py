"""The audit log of a running broker: what users did and were refused, without a secret."""

import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.compat.cli.program import OttlaProgram
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.guarded_broker import WRITE, allow, client, guarded, make, only, produced, rule
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import RawConnection

from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

SECRET = "hunter2-and-more"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    path = tmp_path_factory.mktemp("audit") / "audit.log"
    with guarded(**{"ottla.audit.file": str(path)}) as (_, address):
        yield address, path


def events(path: Path, **wanted: Any) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if wanted.items() <= line.items()]


def test_logins_and_failures_are_noted_without_what_was_typed(running: tuple[str, Path]) -> None:
    address, path = running
    make(address, "logins")
    for user, claimed in (("alice", "User:alice"), (SECRET, None)):
        admin = AdminClient(client(address, user, **{"sasl.password": SECRET}))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        line = eventually(
            lambda claimed=claimed: events(path, event="authentication", outcome="failed", principal=claimed)
        )[0]
        assert line["mechanism"] == "PLAIN"
        assert line["listener"] == "OUTSIDE"
        assert line["address"] == "127.0.0.1"
        assert "Invalid username or password" in line["reason"]
    assert eventually(lambda: events(path, event="authentication", outcome="succeeded", principal="User:admin"))
    assert SECRET not in path.read_text()


def test_a_refusal_names_who_was_refused_what(running: tuple[str, Path]) -> None:
    address, path = running
    make(address, "orders")
    assert produced(address, "alice", "orders") is not None
    line = eventually(lambda: events(path, event="refusal", resource="orders"))[0]
    assert (line["principal"], line["operation"], line["resource_type"]) == ("User:alice", "DESCRIBE", "TOPIC")
    assert (line["api"], line["listener"], line["address"]) == ("METADATA", "OUTSIDE", "127.0.0.1")


def test_changes_are_noted_with_their_outcome(running: tuple[str, Path]) -> None:
    address, path = running
    admin = AdminClient(client(address, "admin"))

    def done(futures: Any) -> None:
        for future in futures.values():
            future.result(10)

    done(admin.create_topics([NewTopic("made", 2, 1)]))
    with pytest.raises(KafkaException):
        done(admin.create_topics([NewTopic("made", 2, 1)]))
    done(admin.create_partitions([NewPartitions("made", 5)]))
    set_to = AlterConfigOpType.SET
    topic = ConfigResource(
        ResourceType.TOPIC,
        "made",
        incremental_configs=[ConfigEntry("retention.ms", "60000", incremental_operation=set_to)],
    )
    done(admin.incremental_alter_configs([topic]))
    broker = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry("listener.name.outside.ssl.key.password", SECRET, incremental_operation=set_to)
        ],
    )
    done(admin.incremental_alter_configs([broker]))
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", scram, SECRET.encode())]))
    done(admin.alter_user_scram_credentials([UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)]))
    allow(address, rule("carol", WRITE, "made"))
    done(admin.delete_acls([only(rule("carol", WRITE, "made"))]))
    done(admin.delete_topics(["made"]))
    with pytest.raises(KafkaException):
        done(admin.delete_consumer_groups(["nobodys"]))

    eventually(lambda: events(path, api="DELETE_GROUPS"))
    shown = [
        {name: value for name, value in line.items() if name not in ("time", "broker", "event", "address", "listener")}
        for line in events(path, event="change", principal="User:admin")
        if line["resource"] in ("made", "1", "carol", "nobodys")
    ]
    assert all(line.pop("principal") == "User:admin" for line in shown)
    right = "ALLOW User:carol from * WRITE on TOPIC made"
    made = {"resource_type": "TOPIC", "resource": "made"}
    carol = {"resource_type": "USER", "resource": "carol"}
    done_well: dict[str, Any] = {"outcome": "succeeded"}
    assert shown == [
        {"api": "CREATE_TOPICS", **done_well, **made, "partitions": 2, "replication_factor": 1},
        {"api": "CREATE_TOPICS", "outcome": "failed", **made, "error": "TOPIC_ALREADY_EXISTS"},
        {"api": "CREATE_PARTITIONS", **done_well, **made, "partitions": 5},
        {"api": "INCREMENTAL_ALTER_CONFIGS", **done_well, **made, "settings": "retention.ms=60000"},
        {
            "api": "INCREMENTAL_ALTER_CONFIGS",
            **done_well,
            "resource_type": "BROKER",
            "resource": "1",
            "settings": "listener.name.outside.ssl.key.password",
        },
        {"api": "ALTER_USER_SCRAM_CREDENTIALS", **done_well, **carol, "credentials": "SCRAM-SHA-256 set"},
        {"api": "ALTER_USER_SCRAM_CREDENTIALS", **done_well, **carol, "credentials": "SCRAM-SHA-256 deleted"},
        {"api": "CREATE_ACLS", **done_well, **made, "rule": right},
        {"api": "DELETE_ACLS", **done_well, **made, "rule": right},
        {"api": "DELETE_TOPICS", **done_well, **made},
        {
            "api": "DELETE_GROUPS",
            "outcome": "failed",
            "resource_type": "GROUP",
            "resource": "nobodys",
            "error": "GROUP_ID_NOT_FOUND",
        },
    ]
    assert SECRET not in path.read_text()


def test_a_topic_that_its_use_creates_is_noted(running: tuple[str, Path]) -> None:
    address, path = running
    assert produced(address, "admin", "by-use") is None
    line = eventually(lambda: events(path, event="change", resource="by-use"))[0]
    assert (line["api"], line["outcome"], line["principal"]) == ("METADATA", "succeeded", "User:admin")


def test_a_quota_is_noted(running: tuple[str, Path]) -> None:
    address, path = running
    quota = EntryData(
        entity=[
            EntityData(entity_type="user", entity_name="alice"),
            EntityData(entity_type="client-id", entity_name=None),
        ],
        ops=[OpData(key="producer_byte_rate", value=1024.0, remove=False)],
    )
    with RawConnection(address) as connection:
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        connection.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0admin"), 2)
        connection.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1)
    line = eventually(lambda: events(path, api="ALTER_CLIENT_QUOTAS"))[0]
    assert (line["outcome"], line["resource_type"], line["resource"], line["quotas"]) == (
        "succeeded",
        "QUOTA",
        "user alice, client-id <default>",
        "producer_byte_rate=1024",
    )


def test_suggested_rules_allow_what_was_refused(running: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = running
    make(address, "asked-for")
    properties = tmp_path / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=admin\n"
    )
    ottla = OttlaProgram(address)
    login = ("--command-config", str(properties))
    for _ in range(5):  # a client that is refused one right does not ask for the next
        if produced(address, "bob", "asked-for") is None:
            break
        suggestions: list[dict[str, Any]] = eventually(
            lambda: ottla.json("acl", "suggest", "--from-denials", "1h", "--user", "bob", *login)["suggestions"]
        )
        for suggestion in suggestions:
            assert "asked-for" in suggestion["command"]
            ottla(*shlex.split(suggestion["command"])[1:], *login)
    else:
        raise AssertionError("bob is still refused")
    nothing = ottla("acl", "suggest", "--from-denials", "1h", "--user", "bob", *login)
    assert nothing.stdout == ""
    assert "the present rules allow all that was refused" in nothing.stderr


def test_certificates_and_failed_handshakes_are_noted(tmp_path: Path) -> None:
    authority, address, path = Authority(), f"127.0.0.1:{free_port()}", tmp_path / "audit.log"
    ca = authority.write(tmp_path / "ca.pem")
    own, alice = (authority.issue(name).write_pem(tmp_path / f"{name}.pem") for name in ("broker", "alice"))
    broker = OttlaProcess()
    ssl = {"keystore.type": "PEM", "keystore.location": str(own), "truststore.type": "PEM", "client.auth": "required"}
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},OUTSIDE://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
            **{f"listener.name.outside.ssl.{name}": value for name, value in ssl.items()},
            "listener.name.outside.ssl.truststore.location": str(ca),
            "ottla.audit.file": str(path),
        }
    )
    host, _, port = address.partition(":")
    with broker:
        with socket.create_connection((host, int(port))) as plain:
            plain.sendall(b"no TLS at all")
            failed = eventually(lambda: events(path, api="TLS", outcome="failed"))[0]
        assert "does not speak TLS" in failed["reason"]
        keys = {"ssl.certificate.location": str(alice), "ssl.key.location": str(alice), "ssl.ca.location": str(ca)}
        AdminClient({"bootstrap.servers": address, "security.protocol": "SSL", **keys}).list_topics(timeout=10)
        line = eventually(lambda: events(path, api="TLS", outcome="succeeded"))[0]
    assert line["principal"] == "User:CN=alice"
