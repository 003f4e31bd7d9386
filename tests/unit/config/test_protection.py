"""Settings that ask for protection which does not exist yet stop the start, unless that is wanted."""

import re

import pytest

from ottla.config import load
from ottla.errors import InvalidConfig

ASKING = {
    "authorizer.class.name": "com.example.Authorizer",
    "principal.builder.class": "com.example.Builder",
    "security.providers": "com.example.Provider",
    "zookeeper.ssl.ocsp.enable": "TRUE",
    "zookeeper.ssl.context.supplier.class": "com.example.Contexts",
    "delegation.token.master.key": "x",
    "ssl.engine.factory.class": "com.example.Engine",
    "ssl.unheard.of": "1",
    "sasl.jaas.config": "x",
    "sasl.kerberos.unheard.of": "x",
    "listener.name.internal.sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5",
    "sasl.oauthbearer.assertion.file": "/x",
    "listener.name.internal.ssl.engine.factory.class": "x",
    "listener.name.internal.scram-sha-256.sasl.server.callback.handler.class": "x",
    "authoriser.class.name": "a name mistyped is no less a wish",
    "ssl.client.atuh": "required",
}

HARMLESS = {
    "listener.name.internal.gssapi.sasl.jaas.config": "x",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.kinit.cmd": "/opt/kinit",
    "sasl.login.refresh.buffer.seconds": "60",
    "authorizer.class.name": "",
    "super.users": " ",
    "allow.everyone.if.no.acl.found": "true",
    "connections.max.reauth.ms": "0",
    "security.inter.broker.protocol": "PLAINTEXT",
    "zookeeper.set.acl": "false",
    "zookeeper.ssl.client.enable": "false",
    "zookeeper.ssl.protocol": "TLSv1.2",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
    "ssl.endpoint.identification.algorithm": "HTTPS",
    "ssl.keystore.location": "/etc/kafka/keystore.jks",
    "ssl.key.password": "x",
    "sasl.enabled.mechanisms": "GSSAPI",
    "listener.name.internal.sasl.enabled.mechanisms": "PLAIN,GSSAPI",
    "listener.name.internal.plain.sasl.jaas.config": "x",
    "listener.name.internal.plain.connections.max.reauth.ms": "1",
    "listener.name.internal.ssl.client.auth": "none",
    "listener.name.internal.max.connections": "100",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
}


@pytest.mark.parametrize(("name", "value"), ASKING.items())
def test_what_asks_for_protection_is_refused_or_named(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(name)) as refused:
        load(None, {name: value})
    assert "--allow-insecure" in str(refused.value)
    config, warnings = load(None, {name: value}, allow_insecure=True)
    assert config.allow_insecure
    (warning,) = warnings
    assert warning.startswith(f"{name}: ")
    assert warning.endswith("gets NO PROTECTION (--allow-insecure)")
    assert len(value) < 3 or value not in warning, "it may be a secret"


@pytest.mark.parametrize(("name", "value"), HARMLESS.items())
def test_what_asks_for_nothing_starts(name: str, value: str) -> None:
    assert not any("PROTECTION" in warning for warning in load(None, {name: value})[1])


def test_all_is_named_at_once_without_its_values() -> None:
    given = {
        "ssl.trustmanager.algorithm": "hunter2",
        "zookeeper.ssl.ocsp.enable": "true",
        "no.such.setting": "1",
    }
    with pytest.raises(InvalidConfig) as refused:
        load(None, given)
    lines = str(refused.value).splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        "ssl.trustmanager.algorithm",
        "zookeeper.ssl.ocsp.enable",
    ]
    assert "hunter2" not in str(refused.value)


def test_settings_of_tls_and_sasl_that_no_listener_uses_are_named() -> None:
    given = {
        "ssl.client.auth": "required",
        "listener.name.inside.ssl.key.password": "hunter2",
        "listener.name.inside.plain.sasl.jaas.config": "hunter2",
    }
    _, warnings = load(None, given)
    assert [warning.partition(":")[0] for warning in warnings if "no listener that it concerns" in warning] == [*given]
    given["listeners"] = "INSIDE://localhost:1"
    given["listener.security.protocol.map"] = "INSIDE:SASL_SSL"
    assert not load(None, given)[1]


def test_changes_while_it_runs_keep_what_was_allowed() -> None:
    config, _ = load(None, {"ssl.client.auth": "required", "listeners": "SSL://localhost:1"}, allow_insecure=True)
    assert config.with_changes({"log.retention.ms": "5"}).allow_insecure
