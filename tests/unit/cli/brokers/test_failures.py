"""Errors as sentences, names nearest to mistyped ones, addresses."""

import pytest
from confluent_kafka import KafkaError

from ottla.cli.brokers.client import ClientLog
from ottla.cli.brokers.failures import explain
from ottla.cli.consume.starting import Start, parse_offset
from ottla.cli.terminal.suggest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("code", "text", "sentence"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, None, "the topic or partition does not exist"),
        (KafkaError.INVALID_CONFIG, "Invalid value abc for retention.ms.", "invalid value abc for retention.ms"),
        (KafkaError._TIMED_OUT, None, "no answer in time"),
        (KafkaError._INVALID_ARG, 'No such configuration property: "lingr.ms"', "did you mean 'linger.ms'"),
    ],
)
def test_explanations(code: int, text: str | None, sentence: str) -> None:
    assert sentence in explain(KafkaError(code, text))


def test_silence_is_explained_by_the_clients_log() -> None:
    log = ClientLog()
    assert log.last_reason() is None
    log.logger.error(
        "FAIL [ottla-cli#producer-1] [thrd:box:9092/1]: box:9092/1: Connect to ipv4#10.0.0.7:9092 failed: "
        "No route to host (after 3ms in state CONNECT)"
    )
    log.logger.warning("CONFWARN [thrd:app]: something harmless")
    reason = log.last_reason()
    assert reason == "box:9092/1: Connect to ipv4#10.0.0.7:9092 failed: No route to host"
    assert "advertised.listeners" in explain(KafkaError(KafkaError._TIMED_OUT), reason)


def test_nearest_names() -> None:
    assert nearest("oders", ["payments", "orders"]) == "orders"
    assert nearest("ORDERS", ["orders"]) == "orders"
    assert nearest("zzz", ["orders"]) is None
    assert did_you_mean("zzz", ["orders"]) == ""


def test_offsets_to_start_at() -> None:
    assert parse_offset("beginning") == parse_offset("Earliest") == Start("beginning")
    assert parse_offset("end") == Start("end")
    assert (parse_offset("17"), parse_offset("-3")) == (Start(offset=17), Start(offset=-3))
