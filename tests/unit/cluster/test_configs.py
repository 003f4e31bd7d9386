"""Changes of settings, and where values come from."""

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import SetConfigs, apply
from ottla.cluster.config_description import ConfigSource, SettingsInForce
from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation, effective_config, plan_configs
from ottla.cluster.image import ResourceType
from ottla.config.broker import BrokerConfig
from ottla.config.group_settings import GROUP_SETTINGS
from ottla.errors import ErrorCode, OttlaError

STATIC = BrokerConfig({"log.retention.minutes": "2", "log.cleanup.policy": "compact"})
IMAGE = with_topic(cluster(1), "t", partition(0, 1, (1,)), **{"retention.ms": "1"})
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def after(change: ConfigChange) -> dict[str, str]:
    return dict(plan_configs(IMAGE, effective_config(IMAGE, STATIC), change, static=STATIC).configs)


def topic(*edits: tuple[str, ConfigOperation, str | None], replace: bool = False, name: str = "t") -> ConfigChange:
    return ConfigChange(ResourceType.TOPIC, name, [ConfigEdit(*edit) for edit in edits], replace)


def group(*edits: tuple[str, ConfigOperation, str | None], replace: bool = False, name: str = "g") -> ConfigChange:
    return ConfigChange(ResourceType.GROUP, name, [ConfigEdit(*edit) for edit in edits], replace)


def broker(name: str, *edits: tuple[str, ConfigOperation, str | None]) -> ConfigChange:
    return ConfigChange(ResourceType.BROKER, name, [ConfigEdit(*edit) for edit in edits])


@pytest.mark.parametrize(
    ("change", "configs"),
    [
        (topic(), {"retention.ms": "1"}),
        (topic(("retention.ms", SET, "2")), {"retention.ms": "2"}),
        (topic(("retention.ms", DELETE, None)), {}),
        (topic(("segment.ms", DELETE, None)), {"retention.ms": "1"}),
        (topic(("segment.ms", SET, "9"), replace=True), {"segment.ms": "9"}),
        (topic(replace=True), {}),
        (topic(("cleanup.policy", APPEND, "delete"), replace=True), {"cleanup.policy": "compact,delete"}),
        (topic(("cleanup.policy", APPEND, "compact"), replace=True), {"cleanup.policy": "compact"}),
        (topic(("cleanup.policy", SUBTRACT, "compact"), replace=True), {"cleanup.policy": ""}),
        (broker("", ("log.retention.ms", SET, "5")), {"log.retention.ms": "5"}),
        (broker("1", ("log.cleanup.policy", APPEND, "compact")), {"log.cleanup.policy": "delete,compact"}),
        (group(("consumer.session.timeout.ms", SET, "50000")), {"consumer.session.timeout.ms": "50000"}),
        (group(("share.delivery.order", SET, "key"), replace=True), {"share.delivery.order": "key"}),
        (group(("share.delivery.order", DELETE, None)), {}),
    ],
)
def test_allowed_changes(change: ConfigChange, configs: dict[str, str]) -> None:
    assert after(change) == configs


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (topic(("nope", SET, "1")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (topic(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (topic(("retention.ms", SET, "1"), ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (topic(name="missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic(name=""), ErrorCode.INVALID_REQUEST),
        (topic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (broker("2"), ErrorCode.INVALID_REQUEST),
        (broker("one"), ErrorCode.INVALID_REQUEST),
        (broker("1", ("node.id", SET, "1")), ErrorCode.INVALID_REQUEST),
        (broker("1", ("num.io.threads", SET, "1")), ErrorCode.INVALID_REQUEST),
        (broker("1", ("log.retention.ms", SET, "0")), ErrorCode.INVALID_REQUEST),
        (ConfigChange(ResourceType.CLIENT_METRICS, "", []), ErrorCode.INVALID_REQUEST),
        (group(name=""), ErrorCode.INVALID_REQUEST),
        (group(("nope", SET, "1")), ErrorCode.INVALID_CONFIG),
        (group(("consumer.session.timeout.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (group(("consumer.session.timeout.ms", SET, "60001")), ErrorCode.INVALID_CONFIG),
    ],
)
def test_refused_changes(change: ConfigChange, code: ErrorCode) -> None:
    with pytest.raises(OttlaError) as refused:
        after(change)
    assert refused.value.code is code


def test_the_nearest_layer_wins() -> None:
    for_all = SetConfigs(ResourceType.BROKER, "", {"log.retention.ms": "5", "log.segment.bytes": "1048576"})
    for_one = SetConfigs(ResourceType.BROKER, "1", {"log.retention.ms": "6"})
    of_another = SetConfigs(ResourceType.BROKER, "2", {"log.retention.ms": "7"})
    image = apply(IMAGE, [for_all, for_one, of_another])
    assert effective_config(IMAGE, STATIC) is STATIC
    in_force = effective_config(image, STATIC)
    assert in_force.log_config({}).retention_ms == 6
    described = SettingsInForce(image, in_force, STATIC)
    (entry,) = described.topic({}, ["retention.ms"])
    assert [(synonym.name, synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("log.retention.ms", "6", "DYNAMIC_BROKER_CONFIG"),
        ("log.retention.ms", "5", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("log.retention.minutes", "2", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    (own,) = described.topic({"retention.ms": "1"}, ["retention.ms"])
    assert (own.value, own.source) == ("1", ConfigSource.TOPIC_CONFIG)
    assert [entry.setting.name for entry in described.broker(None, cluster_default=True)] == [
        "log.retention.ms",
        "log.segment.bytes",
    ]


def test_what_an_altered_text_stands_for_is_not_described() -> None:
    """It may be a secret of a provider, and the right to alter settings is not the right to read files."""
    static = BrokerConfig({"node.id": "1", "ssl.cipher.suites": "A"})
    altered = {"ssl.cipher.suites": "${env:TOKEN}", "ssl.endpoint.identification.algorithm": "${env:TOKEN}"}
    image = apply(IMAGE, [SetConfigs(ResourceType.BROKER, "1", altered)])
    in_force = static.with_changes(dict.fromkeys(altered, "sesame"))
    described = SettingsInForce(image, in_force, static).broker(list(altered))
    assert [entry.value for entry in described] == ["${env:TOKEN}"] * 2


def test_a_groups_settings_are_its_own_or_defaults() -> None:
    in_force = SettingsInForce(IMAGE, STATIC, STATIC)
    described = {entry.setting.name: entry for entry in in_force.group({"consumer.session.timeout.ms": "46000"}, None)}
    assert set(described) == set(GROUP_SETTINGS)
    own, other = described["consumer.session.timeout.ms"], described["consumer.heartbeat.interval.ms"]
    assert (own.value, own.source, own.read_only) == ("46000", ConfigSource.GROUP_CONFIG, False)
    assert own.synonyms == (
        ("consumer.session.timeout.ms", "46000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    )
    assert (other.value, other.source) == ("5000", ConfigSource.DEFAULT_CONFIG)
    (entry,) = in_force.group({}, ["share.delivery.order", "nope"])
    assert entry.value == "any"


def test_every_setting_is_described_but_the_internal_ones() -> None:
    in_force = SettingsInForce(IMAGE, STATIC, STATIC)
    names = [entry.setting.name for entry in in_force.topic({}, None)]
    assert "internal.segment.bytes" not in names
    assert "internal.segment.bytes" in [e.setting.name for e in in_force.topic({"internal.segment.bytes": "9"}, None)]
    assert "log.initial.task.delay.ms" not in [entry.setting.name for entry in in_force.broker(None)]
    assert [entry.value for entry in in_force.broker(["log.cleanup.policy", "nope"])] == ["compact"]
