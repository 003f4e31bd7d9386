"""A group's settings: the table, its typed view, and the bounds that the broker sets."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.group_settings import (
    GROUP_SETTINGS,
    GroupSettings,
    OffsetReset,
    check_group_values,
    group_settings,
    parse_offset_reset,
)
from ottla.config.setting import render_value
from ottla.errors import InvalidConfig

CONFIG = BrokerConfig({})


def test_the_typed_view_has_every_setting_and_its_default() -> None:
    assert GroupSettings._fields == tuple(group.setting.attribute for group in GROUP_SETTINGS.values())
    assert group_settings(CONFIG, {}) == GroupSettings() == CONFIG.group_settings({})


@pytest.mark.parametrize("name", GROUP_SETTINGS)
def test_a_default_is_a_value_and_that_of_the_broker_and_the_text_a_sentence(name: str) -> None:
    group = GROUP_SETTINGS[name]
    assert render_value(group.setting.parse(group.setting.default)) == group.setting.default
    assert group.setting.doc.endswith(".")
    if group.default is not None:
        assert BROKER_SETTINGS[group.default].default == group.setting.default
    for bound in (group.least, group.most):
        assert bound is None or bound in BROKER_SETTINGS


def test_a_group_has_its_own_settings_and_else_the_brokers() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    assert config.group_settings({}).consumer_session_timeout_ms == 50_000
    own = config.group_settings(
        {
            "consumer.session.timeout.ms": "46000",
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.delivery.order": "key",
            "of.another.release": "1",
        }
    )
    assert own == GroupSettings(
        consumer_session_timeout_ms=46_000,
        share_auto_offset_reset=OffsetReset("by_duration", 3_600_000),
        share_delivery_order="key",
    )


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"nope": "1"}, "Unknown group config name: nope"),
        ({"streams.num.standby.replicas": "3"}, "less than or equal to group.streams.max.standby.replicas"),
        ({"streams.session.timeout.ms": "44999"}, "greater than or equal to group.streams.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "x"}, "Not a number of type INT"),
        ({"consumer.session.timeout.ms": "44999"}, "greater than or equal to group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "less than or equal to group.consumer.max.session.timeout.ms"),
        ({"share.record.lock.duration.ms": "1000"}, "greater than or equal to group.share.min.record.lock.duration.ms"),
        ({"share.delivery.order": "none"}, "String must be one of: any, key"),
        ({"share.auto.offset.reset": "none"}, "for configuration share.auto.offset.reset. The value must be either"),
    ],
)
def test_what_cannot_be_is_refused(overrides: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        check_group_values(CONFIG, overrides)


def test_a_session_outlasts_a_heartbeat() -> None:
    config = BrokerConfig({"group.consumer.max.heartbeat.interval.ms": "60000"})
    check_group_values(config, {"consumer.heartbeat.interval.ms": "44999"})
    with pytest.raises(InvalidConfig, match=r"consumer.session.timeout.ms must be greater than consumer.heartbeat"):
        check_group_values(config, {"consumer.heartbeat.interval.ms": "45000"})


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.25s", 250),
        ("PT1,5S", 1_500),
        ("-PT-1S", 1_000),
        ("PT1M-30S", 30_000),
        ("PT0S", 0),
        ("+PT10S", 10_000),
    ],
)
def test_durations_as_java_reads_them(text: str, duration_ms: int) -> None:
    assert parse_offset_reset(f"by_duration:{text}") == OffsetReset("by_duration", duration_ms)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1H", "PT-1H", "-P1D", "PT1.1H", "P1Y", "PT1H ", "PT1S1H"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_offset_reset(f"by_duration:{text}")
