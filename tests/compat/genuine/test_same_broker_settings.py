"""Every setting of a broker by its name: described, changed and refused as by Kafka, also with values from elsewhere.

Kafka 4.1.1 describes unknown names and `config.providers` in another way, and so is not asked.
"""

import os
import socket
from collections.abc import Iterator

import pytest
from tests.compat.genuine.test_same_answers import BROKER, DELETE, NOT_COMPARED, SET, Pair, comparable, flat
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import RawConnection, ask

from ottla.errors import ErrorCode
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import incremental_alter_configs as ic

ADDRESSES = {"listeners", "listener.security.protocol.map"}
"""Each has its own, and Kafka its controller's besides."""
LISTS_OF_KAFKA_4_3 = {"advertised.listeners", "controller.listener.names", "listeners", "log.dir", "log.dirs"}
"""Text in Kafka until 4.2, and here."""
OTHER_DEFAULTS = {"process.roles", "log.dir", "log.dirs", "node.id", "broker.id", "listeners"}
NUMBERS = (3, 4, 5, 6)
OUTSIDE = ("-99999999999", "-3", "no number")
ENV_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
PROVIDERS = {
    "config.providers": "env",
    "config.providers.env.class": ENV_PROVIDER,
    "config.providers.env.param.allowlist.pattern": "STORY_.*",
}
ENVIRONMENT = {"STORY_MS": "123456", "STORY_WORD": "secret"}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    settings = {**PROVIDERS, "log.retention.ms": "${env:STORY_MS}", "house.plugin": "x"}
    os.environ.update(ENVIRONMENT)  # the tool that formats genuine Kafka's directory reads its settings, too
    try:
        process = OttlaProcess(properties=settings)
        process.properties["advertised.listeners"] = f"PLAINTEXT://{process.bootstrap}"
        with GenuineKafka(properties=settings) as genuine, process as ottla:
            yield Pair(genuine.bootstrap, ottla.bootstrap)
    finally:
        for name in ENVIRONMENT:
            del os.environ[name]


def broker_settings(bootstrap: str) -> dict[str, dc.DescribeConfigsResourceResult]:
    resource = dc.DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = dc.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return {entry.name: entry for entry in ask(bootstrap, request, 4).results[0].configs}


def change(name: str, resource: str, value: str | None, *, only: bool = True) -> ic.IncrementalAlterConfigsRequest:
    return changes(resource, {name: value}, only=only)


def changes(resource: str, values: dict[str, str | None], *, only: bool = False) -> ic.IncrementalAlterConfigsRequest:
    edits = [
        ic.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in values.items()
    ]
    asked = ic.AlterConfigsResource(resource_type=BROKER, resource_name=resource, configs=edits)
    return ic.IncrementalAlterConfigsRequest(resources=[asked], validate_only=only)


def look(pair: Pair, resource: str, *names: str) -> None:
    asked = dc.DescribeConfigsResource(
        resource_type=BROKER, resource_name=resource, configuration_keys=list(names) or None
    )
    pair.look(dc.DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4)


def in_words(answer: object) -> list[str]:
    """An answer line by line, without what Scala's `require` puts before Kafka's words."""
    return [line.replace("requirement failed: ", "") for line in flat(answer)]


def test_every_setting_is_described(pair: Pair) -> None:
    """Defaults that differ on purpose, and what the two were started with, are left aside."""
    genuine, ottla = (broker_settings(bootstrap) for bootstrap in pair)
    assert not genuine.keys() - ottla.keys()
    for name, entry in genuine.items():
        here = ottla[name]
        assert here.is_sensitive == entry.is_sensitive, name
        assert here.read_only == entry.read_only, name
        assert name in LISTS_OF_KAFKA_4_3 or here.config_type == entry.config_type, name
        if entry.config_source == here.config_source == 5 and name not in OTHER_DEFAULTS:
            assert here.value == entry.value, name


def test_every_setting_is_changed_or_refused_alike(pair: Pair) -> None:
    """Each to the value it has, numbers to some that they cannot have; for a broker, and for all.

    Those that would ask Ottla for protection are another test's.
    """
    differing: list[str] = []
    with RawConnection(pair.genuine) as genuine, RawConnection(pair.ottla) as ottla:
        for name, entry in broker_settings(pair.genuine).items():
            if name in ADDRESSES | NOT_COMPARED or name.startswith(("ssl.", "sasl.")):
                continue
            value = entry.value if entry.value is not None else "1"
            for resource in ("1", ""):
                for text in (value, *(OUTSIDE if entry.config_type in NUMBERS and not entry.read_only else ())):
                    request = change(name, resource, text)
                    answers = [in_words(comparable(each.ask(request, 1))) for each in (genuine, ottla)]
                    if answers[0] != answers[1]:
                        differing += [f"{name}={text} ({resource!r})", *map(str, answers)]
    assert not differing, "\n".join(differing)


def test_listeners_are_changed_and_refused_alike(pair: Pair) -> None:
    assert listener_story(pair.ottla) == listener_story(pair.genuine)


def listener_story(bootstrap: str) -> list[tuple[str, int]]:
    """What a broker answers, step by step, while a listener is added and removed."""
    now = {name: str(broker_settings(bootstrap)[name].value) for name in ADDRESSES}
    port = free_port()
    more = {
        "listeners": f"{now['listeners']},MORE://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{now['listener.security.protocol.map']},MORE:PLAINTEXT",
    }
    steps: dict[str, tuple[str, dict[str, str | None]]] = {
        "without a protocol": ("1", {"listeners": more["listeners"]}),
        "for all brokers": ("", {**more}),
        "without the one between brokers": (
            "1",
            {**more, "listeners": more["listeners"].replace(f"PLAINTEXT://{bootstrap},", "")},
        ),
        "advertised": ("1", {"advertised.listeners": f"PLAINTEXT://{bootstrap}"}),
        "no address": ("1", {"listeners": "PLAINTEXT"}),
        "added": ("1", {**more}),
        "a setting of the existing one": (
            "1",
            {
                "listener.security.protocol.map": f"{more['listener.security.protocol.map']},THIRD:PLAINTEXT",
                "listener.name.more.connections.max.reauth.ms": "5",
            },
        ),
        "removed": ("1", {"listeners": None}),
    }
    found: list[tuple[str, int]] = []
    for step, (resource, values) in steps.items():
        (answer,) = ask(bootstrap, changes(resource, values), 1).responses
        found.append((step, answer.error_code))
        if step in ("added", "removed"):
            eventually(lambda step=step: is_open(port) == (step == "added"))
    return found


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


def test_names_that_nobody_knows(pair: Pair) -> None:
    look(pair, "1", "house.plugin", "config.providers", "config.providers.env.class")
    pair.ask(changes("1", {"my.own": "x", "listener.name.plaintext.max.connections": "77"}), 1)
    pair.ask(changes("", {"my.other": "y"}), 1)
    look(pair, "1", "my.own", "my.other", "listener.name.plaintext.max.connections", "max.connections")
    look(pair, "", "my.own", "my.other")
    pair.ask(changes("1", {"my.own": None, "listener.name.plaintext.max.connections": None}), 1)
    pair.ask(changes("", {"my.other": None}), 1)
    look(pair, "1", "my.own", "my.other")


def test_values_from_elsewhere(pair: Pair) -> None:
    """Kafka wants the provider declared with the change; Ottla takes those of the properties file, and no others."""
    look(pair, "1", "log.retention.ms")
    for resource in ("1", ""):
        pair.ask(changes(resource, {**PROVIDERS, "log.roll.ms": "${env:STORY_MS}"}), 1)
    look(pair, "1", "log.roll.ms", "config.providers")
    pair.ask(changes("1", {"log.roll.ms": "${nope:STORY_MS}"}), 1)
    pair.ask(changes("1", {"log.roll.ms": "7"}), 1)
    look(pair, "1", "log.roll.ms")
    for resource in ("1", ""):
        pair.ask(changes(resource, {**dict.fromkeys(PROVIDERS), "log.roll.ms": None}), 1)
    look(pair, "1", "log.roll.ms", "config.providers")


def test_a_value_from_elsewhere_is_not_told_by_its_refusal(pair: Pair) -> None:
    for text, said in (("${env:STORY_WORD}", "what it stands for is not taken"), ("${env:HOME}", "allowlist.pattern")):
        for name in ("log.roll.ms", "compression.type"):
            (answer,) = ask(pair.ottla, change(name, "1", text), 1).responses
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert said in answer.error_message
            assert "secret" not in answer.error_message
    files = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "log.roll.ms": "${file:/etc/hostname:x}",
    }
    (answer,) = ask(pair.ottla, changes("1", dict(files), only=True), 1).responses
    assert answer.error_message.startswith("Invalid value ${file:/etc/hostname:x} for configuration log.roll.ms")
