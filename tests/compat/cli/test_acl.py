"""`ottla acl`: roles are granted, listed, explained and revoked, on Ottla and on genuine Kafka."""

import json
from collections.abc import Iterator

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module", params=[OttlaProcess, GenuineKafka], ids=["ottla", "genuine"])
def ottla(request: pytest.FixtureRequest) -> Iterator[OttlaProgram]:
    broker: BrokerProcess = request.param(properties=SETTINGS)
    with broker:
        yield OttlaProgram(broker.bootstrap)


def test_a_role_comes_and_goes(ottla: OttlaProgram) -> None:
    assert ottla.json("acl", "list") == []
    planned = ottla("acl", "grant", "producer", "alice", "--topic", "orders", "--dry-run")
    assert "3 rules would be added" in planned.stderr
    assert ottla.json("acl", "list") == []
    ottla("acl", "grant", "producer", "alice", "--topic", "orders", "--transactional-id", "pay")
    ottla("acl", "grant", "consumer", "bob", "--topic", "ord", "--group", "readers", "--prefix")
    listed = {(row["principal"], row["operation"], row["kind"], row["name"]) for row in ottla.json("acl", "list")}
    assert listed == {
        ("User:alice", "write", "topic", "orders"),
        ("User:alice", "describe", "topic", "orders"),
        ("User:alice", "create", "topic", "orders"),
        ("User:alice", "write", "transactional-id", "pay"),
        ("User:alice", "describe", "transactional-id", "pay"),
        ("User:bob", "read", "topic", "ord"),
        ("User:bob", "describe", "topic", "ord"),
        ("User:bob", "read", "group", "readers"),
    }
    assert "0 rules added" in ottla("acl", "grant", "producer", "alice", "--topic", "orders").stderr
    about = ottla.json("acl", "list", "--kind", "topic", "--name", "orders", "--user", "bob")
    assert [row["pattern"] for row in about] == ["prefixed"] * 2

    allowed = ottla("acl", "why", "bob", "read", "topic", "orders")
    assert allowed.stdout == "User:bob may read topic orders: by the rule: ALLOW User:bob from * READ on TOPIC ord*\n"
    refused = ottla("acl", "why", "bob", "write", "topic", "orders", code=1)
    assert "User:bob may not write topic orders: no rule allows it" in refused.stdout
    assert "ottla acl grant producer bob --topic orders" in refused.stderr
    nothing = ottla("acl", "why", "bob", "alter", "cluster", code=1)
    assert "no rule mentions it" in nothing.stdout

    ottla("acl", "revoke", "producer", "alice", "--topic", "orders", "--transactional-id", "pay")
    ottla("acl", "revoke", "consumer", "bob", "--topic", "ord", "--group", "readers", "--prefix")
    assert ottla.json("acl", "list") == []
    assert "0 rules removed" in ottla("acl", "revoke", "producer", "alice", "--topic", "orders").stderr


def test_a_single_rule_comes_and_goes(ottla: OttlaProgram) -> None:
    deny = ("deny", "bob", "write", "topic", "pay", "--prefix", "--host", "10.0.0.1")
    assert "1 rule would be added" in ottla("acl", "add", *deny, "--dry-run").stderr
    assert "1 rule added" in ottla("acl", "add", *deny).stderr
    assert "0 rules added" in ottla("acl", "add", *deny).stderr
    ottla("acl", "add", "allow", "bob", "all", "topic", "*")
    asked = ("acl", "why", "bob", "write", "topic", "payments", "--host", "10.0.0.1", "--json")
    assert json.loads(ottla(*asked, code=1).stdout)["changes"] == [
        "To allow it: ottla acl remove deny User:bob write topic --prefix --host 10.0.0.1 pay"
    ]
    assert "may write topic payments: by the rule" in ottla("acl", "why", "bob", "write", "topic", "payments").stdout
    assert "1 rule removed" in ottla("acl", "remove", *deny).stderr
    assert "1 rule removed" in ottla("acl", "remove", "allow", "bob", "all", "topic", "*").stderr
    assert "0 rules removed" in ottla("acl", "remove", *deny).stderr


def test_super_users_are_read_from_the_settings(ottla: OttlaProgram, request: pytest.FixtureRequest) -> None:
    asked = ("acl", "why", "ANONYMOUS", "alter", "cluster")
    if "genuine" in request.node.name:
        hidden = ottla(*asked, code=1)
        assert "these brokers do not show super.users" in hidden.stderr
    else:
        assert "User:ANONYMOUS may alter cluster kafka-cluster: it is a super user" in ottla(*asked).stdout


def test_without_an_audit_log_there_is_nothing_to_suggest_from(ottla: OttlaProgram) -> None:
    assert "the brokers keep no audit log" in ottla("acl", "suggest", "--from-denials", "1h", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("grant", "producer", "alice"), "give --topic"),
        (("grant", "consumer", "alice", "--topic", "x"), "give --group"),
        (("grant", "admin", "alice", "--topic", "x"), "leave --topic"),
        (("grant", "producer", "alice", "--topic", "x", "--group", "y"), "leave --group out"),
        (("why", "alice", "read", "topic"), "name the topic"),
        (("add", "allow", "alice", "create-tokens", "topic", "x"), "there is no operation create-tokens on a topic"),
        (("suggest", "--from-denials", "1h", "--offline"), "--offline needs --audit-log"),
        (("why", "alice", "create-tokens", "topic", "x"), "there is no operation create-tokens on a topic"),
    ],
)
def test_wrong_use_is_explained(ottla: OttlaProgram, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in ottla("acl", *arguments, code=2).stderr


def test_without_an_authorizer() -> None:
    with OttlaProcess() as broker:
        assert "No Authorizer is configured" in OttlaProgram(broker.bootstrap)("acl", "list", code=1).stderr
