import pytest

from ottla.spark.client_settings import as_settings, client_settings, library
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


def test_other_logins_are_refused_with_what_to_give() -> None:
    with pytest.raises(OptionError, match=r"the options kafka\.\*: sasl\.jaas\.config names Krb5LoginModule"):
        settings(sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;")


def test_stores_are_read_where_a_client_is_made() -> None:
    found = settings(ssl_truststore_location="/x.jks", ssl_truststore_password="p")
    assert found == {"ssl.truststore.location": "/x.jks", "ssl.truststore.password": "p"}
    with pytest.raises(OptionError, match=r"ssl\.truststore\.location: /x\.jks cannot be read"):
        library(found.items())


def test_settings_show_no_secret() -> None:
    shown = repr(as_settings({"sasl.password": "pencil", "client.id": "x"}))
    assert "pencil" not in shown
    assert "'client.id': 'x'" in shown


def test_servers_are_needed_and_some_settings_are_the_sources_own() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers' .* is missing"):
        client_settings({"subscribe": "t"})
    with pytest.raises(OptionError, match="keys are always bytes"):
        settings(key_deserializer="x")
