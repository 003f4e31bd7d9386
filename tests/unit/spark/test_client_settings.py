import pytest

from ottla.spark.client_settings import client_settings
from ottla.spark.errors import OptionError

SERVERS = {"kafka.bootstrap.servers": "box:9092"}


def settings(**given: str) -> dict[str, str]:
    """Dots for underscores; without the servers."""
    options = {f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}
    found = dict(client_settings({**SERVERS, "subscribe": "t", **options}))
    assert found.pop("bootstrap.servers") == "box:9092"
    return found


def test_settings_are_handed_through_without_their_prefix() -> None:
    assert settings(security_protocol="SSL", client_id="x") == {"security.protocol": "SSL", "client.id": "x"}


def test_javas_names_become_the_librarys() -> None:
    assert settings(fetch_max_wait_ms="7", receive_buffer_bytes="8") == {
        "fetch.wait.max.ms": "7",
        "socket.receive.buffer.bytes": "8",
    }
    assert settings(fetch_max_wait_ms="7", fetch_wait_max_ms="9") == {"fetch.wait.max.ms": "9"}


def test_what_only_javas_client_has_is_left_out() -> None:
    assert settings(max_poll_records="100", default_api_timeout_ms="5", group_id="g") == {"group.id": "g"}


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_name_and_password_are_taken_out_of_javas_line(module: str) -> None:
    line = rf"""org.apache.kafka.common.security.{module} required username="ann" password="a \"b\\c;" ;"""
    assert settings(sasl_jaas_config=line, sasl_mechanism="PLAIN") == {
        "sasl.mechanism": "PLAIN",
        "sasl.password": 'a "b\\c;',
        "sasl.username": "ann",
    }
    quoted = line.replace('"ann"', "'ann'")
    assert settings(sasl_jaas_config=quoted)["sasl.username"] == "ann"


@pytest.mark.parametrize(
    "line",
    [
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann";',
    ],
)
def test_other_logins_are_refused_with_what_to_give(line: str) -> None:
    with pytest.raises(OptionError, match=r"'kafka\.sasl\.jaas\.config' is understood for PLAIN and SCRAM"):
        settings(sasl_jaas_config=line)


def test_key_stores_that_only_java_reads_are_refused_with_what_to_give() -> None:
    with pytest.raises(OptionError, match=r"truststore\.location' is a JKS file.*kafka\.ssl\.ca\.location"):
        settings(ssl_truststore_location="/x.jks", ssl_truststore_password="p")
    with pytest.raises(OptionError, match=r"keystore\.location' is a JKS file.*PKCS12"):
        settings(ssl_keystore_location="/x.jks")
    assert settings(ssl_truststore_location="/x.pem", ssl_truststore_type="PEM") == {"ssl.ca.location": "/x.pem"}
    assert settings(ssl_keystore_location="/x.p12", ssl_keystore_type="PKCS12", ssl_keystore_password="p") == {
        "ssl.keystore.location": "/x.p12",
        "ssl.keystore.password": "p",
    }


def test_servers_are_needed_and_some_settings_are_the_sources_own() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers' .* is missing"):
        client_settings({"subscribe": "t"})
    with pytest.raises(OptionError, match="keys are always bytes"):
        settings(key_deserializer="x")
