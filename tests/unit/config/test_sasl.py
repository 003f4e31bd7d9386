"""SASL settings of listeners, with their prefixes, and logins of brokers."""

import re

import pytest

from ottla.config import load
from ottla.config.logins import login
from ottla.config.sasl import sasl_settings
from ottla.errors import InvalidConfig

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LISTENERS = {
    "listeners": "INSIDE://localhost:1,OUTSIDE://localhost:2",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL",
}


def test_the_settings_of_a_listener_and_of_a_mechanism_win() -> None:
    given = {
        **LISTENERS,
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "1000",
        "listener.name.outside.sasl.enabled.mechanisms": "scram-sha-512, PLAIN",
        "listener.name.outside.connections.max.reauth.ms": "2000",
        "listener.name.outside.plain.connections.max.reauth.ms": "3000",
        "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} username=a password=b user_a="b" user_c="d";',
        "listener.name.outside.plain.sasl.jaas.config": f"{PLAIN} user_x=y;",
    }
    config, warnings = load(None, given)
    assert warnings == []
    inside, outside = (sasl_settings(config, name) for name in ("INSIDE", "OUTSIDE"))
    assert (inside.mechanisms, inside.plain_users) == (("PLAIN",), {"a": "b", "c": "d"})
    assert inside.reauthentication_ms == {"PLAIN": 1000}
    assert (outside.mechanisms, outside.plain_users) == (("SCRAM-SHA-512", "PLAIN"), {"x": "y"})
    assert outside.reauthentication_ms == {"SCRAM-SHA-512": 2000, "PLAIN": 3000}
    assert repr(inside) == "SaslSettings(PLAIN)"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "listener.name.inside.gssapi.sasl.jaas.config is missing: GSSAPI takes the key"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "listener.name.inside.plain.sasl.jaas.config is missing"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "listener.name.inside.plain.sasl.jaas.config": f"{SCRAM} user_a=b;"},
            "PLAIN needs the login module PlainLoginModule, not ScramLoginModule",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "listener.name.inside.plain.sasl.jaas.config": "hunter2"},
            "listener.name.inside.plain.sasl.jaas.config is not a JAAS configuration",
        ),
    ],
)
def test_listeners_on_which_nobody_could_log_in_are_refused(given: dict[str, str], why: str) -> None:
    config, _ = load(None, {**LISTENERS, **given})
    with pytest.raises(InvalidConfig, match=re.escape(why)) as refused:
        sasl_settings(config, "INSIDE")
    assert "hunter2" not in str(refused.value)


def test_the_login_of_a_broker() -> None:
    given = {
        **LISTENERS,
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.inside.scram-sha-256.sasl.jaas.config": f"{SCRAM} username=broker password=hunter2;",
    }
    found = login(load(None, given)[0], "INSIDE")
    assert found == ("SCRAM-SHA-256", "broker", "hunter2")
    assert "hunter2" not in repr(found)
    setting = "listener.name.inside.scram-sha-256.sasl.jaas.config"
    with pytest.raises(InvalidConfig, match="needs username and password"):
        login(load(None, given | {setting: f"{SCRAM} username=broker;"})[0], "INSIDE")
    del given[setting]
    with pytest.raises(InvalidConfig, match="this broker logs in to others with what it names"):
        login(load(None, given)[0], "INSIDE")
    with pytest.raises(InvalidConfig, match=r"gssapi\.sasl\.jaas\.config is missing"):
        login(load(None, LISTENERS)[0], "INSIDE")


def test_the_login_at_controllers_has_a_mechanism_of_its_own() -> None:
    given = {
        "process.roles": "broker",
        "node.id": "4",
        "listeners": "PLAINTEXT://localhost:1",
        "controller.quorum.voters": "1@localhost:2",
        "controller.listener.names": "CONTROL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:SASL_SSL",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        "listener.name.control.scram-sha-256.sasl.jaas.config": f"{SCRAM} username=node password=hunter2;",
        "ssl.truststore.location": "/etc/ca.pem",
    }
    config, warnings = load(None, given)
    assert login(config, "CONTROL") == ("SCRAM-SHA-256", "node", "hunter2")
    assert not warnings
    with pytest.raises(InvalidConfig, match=r"sasl\.mechanism\.controller\.protocol"):
        login(load(None, given | {"sasl.mechanism.controller.protocol": "NTLM"})[0], "CONTROL")


KEY = "com.sun.security.auth.module.Krb5LoginModule required"
TABLE = 'useKeyTab=true storeKey=true keyTab="/etc/k" principal="kafka/a@B"'


def kerberos(line: str, **more: str) -> dict[str, str]:
    return {
        **LISTENERS,
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.inside.gssapi.sasl.jaas.config": line,
        **{f"sasl.kerberos.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def test_keys_of_kerberos() -> None:
    given = kerberos(f"{KEY} {TABLE} serviceName=kafka;", principal_to_local_rules="RULE:[1:$1]/L,DEFAULT")
    given["listener.name.inside.gssapi.sasl.kerberos.principal.to.local.rules"] = "RULE:[2:$1]"
    config, warnings = load(None, given)
    assert warnings == []
    assert sasl_settings(config, "INSIDE").kerberos == (("kafka/a@B", "/etc/k"), ("RULE:[2:$1]",))
    assert login(config, "INSIDE") == (("kafka/a@B", "/etc/k"), "kafka")
    given = kerberos(f"{KEY} {TABLE.replace('/etc/k', 'file:///etc/k')};", service_name="other")
    assert login(load(None, given)[0], "INSIDE") == (("kafka/a@B", "/etc/k"), "other")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (kerberos(f"{KEY} useTicketCache=true;"), "set useKeyTab=true, not useTicketCache"),
        (kerberos(f"{KEY} keyTab=x principal=y;"), "set useKeyTab=true, keyTab and principal"),
        (kerberos(f"{KEY} useKeyTab=true keyTab=x;"), "needs principal"),
        (kerberos(f"{KEY} {TABLE};"), "sasl.kerberos.service.name is missing"),
        (kerberos(f"{KEY} {TABLE} serviceName=a;", service_name="b"), "leave one out"),
    ],
)
def test_keys_of_kerberos_that_cannot_be_used(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(why)):
        login(load(None, given)[0], "INSIDE")


def tokens(**more: str) -> dict[str, str]:
    return {
        **LISTENERS,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.inside.oauthbearer.sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "listener.name.inside.oauthbearer.sasl.jaas.config": "x.OAuthBearerLoginModule required clientSecret=hunter2;",
        **{f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def test_where_tokens_of_brokers_come_from() -> None:
    given = tokens(token_endpoint_url="https://a/token", client_credentials_client_id="me", scope="kafka")
    config, warnings = load(None, given)
    assert warnings == []
    found = login(config, "INSIDE")
    assert found == ("https://a/token", "me", "hunter2", "kafka")
    assert "hunter2" not in repr(found)
    assert login(load(None, tokens(token_endpoint_url="file:///t"))[0], "INSIDE") == ("file:///t", "", "", None)
    for missing in ({}, {"token_endpoint_url": "http://a/token"}, {"token_endpoint_url": "https://a/token"}):
        with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.token\.endpoint\.url") as refused:
            login(load(None, tokens(**missing))[0], "INSIDE")
        assert "hunter2" not in str(refused.value)
