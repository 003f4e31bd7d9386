"""Client properties, from files and from the Java client's names."""

import pytest

from ottla.cli.brokers.properties import PropertiesProblem, client_properties, read_properties, unknown_property


def test_reading() -> None:
    text = "# note\n! note\n\n a = b = c \nlong=one,\\\n   two\nempty=\n"
    assert read_properties(text) == {"a": "b = c", "long": "one,two", "empty": ""}


@pytest.mark.parametrize("text", ["nonsense", "=value"])
def test_a_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PropertiesProblem, match="is not KEY=VALUE"):
        read_properties(text)


def test_the_java_clients_login_is_understood() -> None:
    jaas = r'org.apache.kafka.common.security.plain.PlainLoginModule required username="an\"a" password="s=1;";'
    assert client_properties({"sasl.jaas.config": jaas, "sasl.mechanism": "PLAIN"}) == {
        "sasl.username": 'an"a',
        "sasl.password": "s=1;",
        "sasl.mechanism": "PLAIN",
    }
    with pytest.raises(PropertiesProblem, match="has no username and password"):
        client_properties({"sasl.jaas.config": "something else"})


def test_what_means_nothing_here_is_dropped() -> None:
    assert client_properties({"key.serializer": "x", "ssl.truststore.type": "JKS", "acks": "1"}) == {"acks": "1"}


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("ssl.truststore.location", "/etc/trust.jks", "ssl.ca.location"),
        ("ssl.keystore.location", "/etc/key.jks", "ssl.certificate.location"),
    ],
)
def test_java_key_stores_are_refused_with_what_to_write_instead(name: str, value: str, instead: str) -> None:
    with pytest.raises(PropertiesProblem, match=instead):
        client_properties({name: value})


def test_an_unknown_property_is_answered_with_the_nearest() -> None:
    assert "did you mean 'linger.ms'" in unknown_property("lingre.ms")
    assert "did you mean" not in unknown_property("entirely.else.now")
