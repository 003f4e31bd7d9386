"""Requests that describe and change settings, over the wire."""

from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.raw_client import ask
from tests.wire.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    changed,
    create,
    described,
    value_of,
    versions,
)

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import alter_configs as ac
from ottla.protocol.messages import list_config_resources as lc
from ottla.testing import Broker

# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describing_a_topics_settings(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 1, {"retention.ms": "1000"})
    every = described(ottla_broker, TOPIC, "orders", version=version, include_synonyms=True)
    found = {entry.name: entry for entry in every.configs}
    assert len(found) == 34
    own, inherited = found["retention.ms"], found["cleanup.policy"]
    assert (own.value, own.config_source, own.read_only) == ("1000", 1, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in own.synonyms] == [("retention.ms", "1000", 1)]
    assert [(synonym.name, synonym.source) for synonym in inherited.synonyms] == [("log.cleanup.policy", 5)]
    if version >= 3:
        assert (own.config_type, inherited.config_type) == (5, 7)
        assert own.documentation is None
        (told,) = described(
            ottla_broker, TOPIC, "orders", "retention.ms", version=version, include_documentation=True
        ).configs
        assert told.documentation.startswith("Remove segments")


def test_describing_what_is_not_there(ottla_broker: Broker) -> None:
    assert described(ottla_broker, TOPIC, "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(ottla_broker, TOPIC, "no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described(ottla_broker, BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert described(ottla_broker, 99, "x").error_code == ErrorCode.INVALID_REQUEST


def test_describing_a_broker(ottla_broker: Broker) -> None:
    found = {entry.name: entry for entry in described(ottla_broker, BROKER, "1", include_synonyms=True).configs}
    assert found["listeners"].value == "PLAINTEXT://127.0.0.1:0"
    assert (found["listeners"].read_only, found["listeners"].config_source) == (False, 4)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == (None, False)
    assert found["num.partitions"].value == "1"
    assert (found["num.io.threads"].value, found["num.io.threads"].read_only) == ("8", False), "it has no effect"
    assert (found["ssl.key.password"].value, found["ssl.key.password"].is_sensitive) == (None, True)
    assert described(ottla_broker, BROKER, "").configs == []


def test_changing_a_topics_settings(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    edits: list[tuple[tuple[str, int, str | None], int, str | None]] = [
        (("cleanup.policy", APPEND, "compact"), 0, "delete,compact"),
        (("cleanup.policy", APPEND, "compact"), 0, "delete,compact"),
        (("cleanup.policy", SUBTRACT, "delete"), 0, "compact"),
        (("cleanup.policy", SET, "shred"), ErrorCode.INVALID_CONFIG, "compact"),
        (("cleanup.policy", DELETE, None), 0, "delete"),
        (("cleanup.policy", SET, None), ErrorCode.INVALID_REQUEST, "delete"),
        (("cleanup.policy", 9, "compact"), ErrorCode.INVALID_REQUEST, "delete"),
        (("nope", SET, "1"), ErrorCode.INVALID_CONFIG, "delete"),
    ]
    for edit, code, value in edits:
        assert changed(ottla_broker, TOPIC, "orders", edit).error_code == code, edit
        assert value_of(ottla_broker, TOPIC, "orders", "cleanup.policy") == value, edit
    assert changed(ottla_broker, TOPIC, "orders", ("retention.ms", APPEND, "1")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, TOPIC, "missing", ("retention.ms", SET, "1")).error_code == 3
    assert changed(ottla_broker, TOPIC, "", ("retention.ms", SET, "1")).error_code == ErrorCode.INVALID_REQUEST
    assert changed(ottla_broker, TOPIC, "orders", ("retention.ms", SET, "7"), validate_only=True).error_code == 0
    assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == "604800000"
    twice = changed(ottla_broker, TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_replacing_a_topics_settings(ottla_broker: Broker, version: int) -> None:
    create(ottla_broker, "orders", 1, {"retention.ms": "1000"})
    resource = ac.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=[ac.AlterableConfig(name="segment.ms", value="5000")]
    )
    for validate_only, retention in ((True, "1000"), (False, "604800000")):
        request = ac.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        assert ask(ottla_broker.bootstrap, request, version).responses[0].error_code == 0
        assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == retention
    assert value_of(ottla_broker, TOPIC, "orders", "segment.ms") == "5000"
    both = ac.AlterConfigsRequest(resources=[resource, resource], validate_only=False)
    codes = [response.error_code for response in ask(ottla_broker.bootstrap, both, version).responses]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_changing_a_brokers_settings_while_it_runs(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    assert changed(ottla_broker, BROKER, "", ("log.retention.ms", SET, "100000")).error_code == 0
    assert value_of(ottla_broker, TOPIC, "orders", "retention.ms") == "100000"
    assert changed(ottla_broker, BROKER, "1", ("log.retention.ms", SET, "200000")).error_code == 0
    (entry,) = described(ottla_broker, TOPIC, "orders", "retention.ms", include_synonyms=True).configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("log.retention.ms", "200000", 2),
        ("log.retention.ms", "100000", 3),
        ("log.retention.hours", "168", 5),
    ]
    assert (entry.value, entry.config_source) == ("200000", 2)
    for key, value in (
        ("node.id", "3"),
        ("num.io.threads", "3"),
        ("num.io.threads", "17"),
        ("ssl.client.auth", "wanted"),
        ("ssl.keystore.location", "/x"),
        ("listeners", "PLAINTEXT://192.0.2.1:1"),
        ("log.segment.bytes", "3"),
        ("log.retention.ms", "0"),
    ):
        assert changed(ottla_broker, BROKER, "1", (key, SET, value)).error_code == ErrorCode.INVALID_REQUEST, key
    assert changed(ottla_broker, BROKER, "2", ("log.retention.ms", SET, "1")).error_code == ErrorCode.INVALID_REQUEST
    refused = changed(ottla_broker, BROKER, "1", ("num.partitions", SET, "3"))
    assert refused.error_message == "Cannot update these configs dynamically: [num.partitions]"


def test_a_smaller_limit_holds_at_once(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")
    assert changed(ottla_broker, TOPIC, "orders", ("max.message.bytes", SET, "200")).error_code == 0
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce("orders", b"x" * 1000, on_delivery=lambda error, _: refused.append(error and error.code()))
    assert producer.flush(10) == 0
    assert refused == [ErrorCode.MESSAGE_TOO_LARGE]


def test_levels_of_loggers(ottla_broker: Broker) -> None:
    names = [entry.name for entry in described(ottla_broker, LOGGER, "1").configs]
    assert names[0] == "root"
    assert "ottla.server.connection" in names
    name = "ottla.server.connection"
    before = value_of(ottla_broker, LOGGER, "1", name)
    try:
        assert changed(ottla_broker, LOGGER, "1", (name, SET, "ERROR")).error_code == 0
        assert value_of(ottla_broker, LOGGER, "1", name) == "ERROR"
    finally:
        assert changed(ottla_broker, LOGGER, "1", (name, DELETE, None)).error_code == 0
    assert value_of(ottla_broker, LOGGER, "1", name) == before
    assert changed(ottla_broker, LOGGER, "1", ("nobody", SET, "INFO")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, LOGGER, "1", (name, SET, "LOUD")).error_code == ErrorCode.INVALID_CONFIG
    assert changed(ottla_broker, LOGGER, "1", ("root", DELETE, None)).error_code == ErrorCode.INVALID_REQUEST
    assert changed(ottla_broker, LOGGER, "1", (name, APPEND, "INFO")).error_code == ErrorCode.INVALID_REQUEST


def test_changing_a_groups_settings(ottla_broker: Broker) -> None:
    name = "share.delivery.order"
    assert [(entry.name, entry.value) for entry in described(ottla_broker, GROUP, "g", name).configs] == [(name, "any")]
    assert changed(ottla_broker, GROUP, "g", (name, SET, "key"), validate_only=True).error_code == 0
    assert described(ottla_broker, GROUP, "g", name).configs[0].value == "any"
    assert changed(ottla_broker, GROUP, "g", (name, SET, "key")).error_code == 0
    (entry,) = described(ottla_broker, GROUP, "g", name).configs
    assert (entry.value, entry.config_source, entry.read_only) == ("key", 8, False)
    assert described(ottla_broker, GROUP, "h", name).configs[0].value == "any"
    refused = changed(ottla_broker, GROUP, "g", (name, SET, "none"), ("share.isolation.level", SET, "read_committed"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    of_streams = changed(ottla_broker, GROUP, "g", ("streams.session.timeout.ms", SET, "1"))
    assert of_streams.error_code == ErrorCode.INVALID_CONFIG
    settings = {entry.name: entry.value for entry in described(ottla_broker, GROUP, "g").configs}
    assert settings["share.isolation.level"] == "read_uncommitted"
    assert settings[name] == "key"


def test_what_can_have_settings(ottla_broker: Broker) -> None:
    create(ottla_broker, "orders")

    def listed(version: int, *kinds: int) -> set[tuple[str, int]]:
        answer = ask(ottla_broker.bootstrap, lc.ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return {(resource.resource_name, resource.resource_type) for resource in answer.config_resources}

    assert listed(0) == set()
    assert listed(1) == {("orders", TOPIC), ("1", BROKER), ("1", LOGGER)}
    assert listed(1, TOPIC) == {("orders", TOPIC)}
    assert listed(1, 16, 32) == set()
    assert changed(ottla_broker, GROUP, "a/b", ("share.delivery.order", SET, "key")).error_code == 0
    assert listed(1, GROUP) == {("a/b", GROUP)}
    assert changed(ottla_broker, GROUP, "a/b", ("share.delivery.order", DELETE, None)).error_code == 0
    assert listed(1, GROUP) == set()
    unknown = ask(ottla_broker.bootstrap, lc.ListConfigResourcesRequest(resource_types=[99]), 1)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION
