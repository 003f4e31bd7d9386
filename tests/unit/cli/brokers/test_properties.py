"""Files of client properties."""

from pathlib import Path

import click
import pytest

from ottla.cli.brokers.client import Connection
from ottla.cli.brokers.properties import read_properties, unknown_property
from ottla.client.properties import PropertiesProblem


def test_reading() -> None:
    text = "# note\n! note\n\n a = b = c \nlong=one,\\\n   two\nempty=\n"
    assert read_properties(text) == {"a": "b = c", "long": "one,two", "empty": ""}


@pytest.mark.parametrize("text", ["nonsense", "=value"])
def test_a_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PropertiesProblem, match="is not KEY=VALUE"):
        read_properties(text)


def test_an_unknown_property_is_answered_with_the_nearest() -> None:
    assert "did you mean 'linger.ms'" in unknown_property("lingre.ms")
    assert "did you mean" not in unknown_property("entirely.else.now")


def test_values_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=env\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "sasl.password=${env:KAFKA_PASSWORD}\n"
    )
    connection = Connection()
    with pytest.raises(click.BadParameter, match=r"sasl\.password: \$\{env:KAFKA_PASSWORD\} has no value"):
        connection.add_properties(file)
    monkeypatch.setenv("KAFKA_PASSWORD", "pencil")
    connection.add_properties(file)
    assert connection.properties == {"sasl.password": "pencil"}
