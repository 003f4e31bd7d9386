"""SASL settings of listeners, with their prefixes, and logins of brokers."""

import re

import pytest

from ottla.config import load
from ottla.config.sasl import login, sasl_settings
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
        ({}, "sasl.enabled.mechanisms of listener INSIDE: GSSAPI is not served"),
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
    del given["listener.name.inside.scram-sha-256.sasl.jaas.config"]
    with pytest.raises(InvalidConfig, match="needs username and password"):
        login(load(None, given)[0], "INSIDE")
    with pytest.raises(InvalidConfig, match="GSSAPI is not supported"):
        login(load(None, LISTENERS)[0], "INSIDE")
