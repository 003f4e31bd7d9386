"""The settings of a group (KIP-848, KIP-932, KIP-1071), each with the broker's settings for default and bounds.

Names, types, defaults and limits are Kafka 4.3's; `share.delivery.order` is Ottla's own.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.config.setting import Kind, OneOf, Range, Setting, Value
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1
from ottla.errors import InvalidConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
ANY_ORDER: Final = "any"
KEY_ORDER: Final = "key"

# Java's `Duration.parse`: days, and after a T hours, minutes and seconds, each with a sign of its own.
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


class OffsetReset(NamedTuple):
    """Where a share group begins in a partition that it has not read before (KIP-932)."""

    strategy: str
    """`EARLIEST`, `LATEST` or `BY_DURATION`."""
    duration_ms: int = 0
    """With `BY_DURATION`: records that are younger than this are read."""


def parse_offset_reset(text: str) -> OffsetReset:
    """Read `share.auto.offset.reset`: `earliest`, `latest`, `by_duration:PT1H`; raises ValueError."""
    if text in (EARLIEST, LATEST):
        return OffsetReset(text)
    strategy, colon, duration = text.partition(":")
    if strategy != BY_DURATION or not colon:
        raise ValueError(f"{text!r} is no way to reset an offset")
    duration_ms = _duration_ms(duration)
    if duration_ms < 0:
        raise ValueError(f"{duration!r} is negative")
    return OffsetReset(BY_DURATION, duration_ms)


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None or not any(found[part] for part in ("days", "hours", "minutes", "seconds")):
        raise ValueError(f"{text!r} is no ISO 8601 duration")
    if found["time"] is not None and len(found["time"]) == 1:
        raise ValueError(f"{text!r} ends in a T")
    seconds = int(found["days"] or 0) * 86_400 + int(found["hours"] or 0) * 3_600 + int(found["minutes"] or 0) * 60
    nanoseconds = (seconds + int(found["seconds"] or 0)) * 10**9
    fraction = int((found["fraction"] or "0").ljust(9, "0"))
    nanoseconds += -fraction if (found["seconds"] or "").startswith("-") else fraction
    return (-nanoseconds if found["sign"] == "-" else nanoseconds) // 10**6


class OffsetResetLimit:
    """What `parse_offset_reset` can read."""

    def problem(self, value: Value) -> str | None:
        """Why a value is no offset reset policy (KIP-932), with `{}` for the setting's name; None if it is one."""
        try:
            parse_offset_reset(str(value))
        except ValueError:
            return (
                f"Invalid value `{value}` for configuration {{}}. The value must be either 'earliest', 'latest' or of "
                "the format 'by_duration:<PnDTnHnMn.nS>'."
            )
        return None

    def describe(self) -> str:
        return "earliest, latest, by_duration:PnDTnHnMn.nS"


class GroupSetting(NamedTuple):
    """A group's setting and the names of the broker's settings around it; None where there is none."""

    setting: Setting
    default: str | None = None
    least: str | None = None
    most: str | None = None


_ALL: Final = (
    GroupSetting(
        Setting(
            "consumer.assignment.interval.ms",
            Kind.INT,
            "1000",
            "How long the assignment of a consumer group stands at least before another is computed.",
            AT_LEAST_0,
        ),
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    GroupSetting(
        Setting(
            "consumer.heartbeat.interval.ms",
            Kind.INT,
            "5000",
            "How often members of a consumer group (KIP-848) send a heartbeat.",
            AT_LEAST_1,
        ),
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "consumer.session.timeout.ms",
            Kind.INT,
            "45000",
            "After how long without a heartbeat a member of a consumer group (KIP-848) is taken for dead.",
            AT_LEAST_1,
        ),
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    GroupSetting(
        Setting(
            "share.assignment.interval.ms",
            Kind.INT,
            "1000",
            "How long the assignment of a share group stands at least before another is computed.",
            AT_LEAST_0,
        ),
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    GroupSetting(
        Setting(
            "share.delivery.count.limit",
            Kind.INT,
            "5",
            "How often a record is delivered to the share group at most.",
            Range(2),
        ),
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    GroupSetting(
        Setting(
            "share.heartbeat.interval.ms",
            Kind.INT,
            "5000",
            "How often members of a share group send a heartbeat.",
            AT_LEAST_1,
        ),
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "share.session.timeout.ms",
            Kind.INT,
            "45000",
            "After how long without a heartbeat a member of a share group is taken for dead.",
            AT_LEAST_1,
        ),
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    GroupSetting(
        Setting(
            "share.record.lock.duration.ms",
            Kind.INT,
            "30000",
            "How long a member of a share group may hold a record before it is given to another.",
            Range(1000),
        ),
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    GroupSetting(
        Setting(
            "share.partition.max.record.locks",
            Kind.INT,
            "2000",
            "Most records of a partition that the members of the share group may hold at a time.",
            Range(100),
        ),
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    GroupSetting(
        Setting(
            "share.renew.acknowledge.enable",
            Kind.BOOLEAN,
            "true",
            "Whether members of the share group may renew their locks on records that they hold (KIP-1222).",
        )
    ),
    GroupSetting(
        Setting(
            "share.auto.offset.reset",
            Kind.STRING,
            LATEST,
            "Where a share group begins in a partition that it has not read before.",
            OffsetResetLimit(),
        )
    ),
    GroupSetting(
        Setting(
            "share.isolation.level",
            Kind.STRING,
            READ_UNCOMMITTED,
            "Whether a share group is given the records of transactions that are open or were aborted.",
            OneOf((READ_COMMITTED, READ_UNCOMMITTED)),
        )
    ),
    GroupSetting(
        Setting(
            "share.delivery.order",
            Kind.STRING,
            ANY_ORDER,
            "Ottla's own. With `key`, of the records of a partition that have one key at most one is with a member of "
            "the share group at a time, and they are delivered in the order of their offsets; records of other keys go "
            "on meanwhile.",
            OneOf((ANY_ORDER, KEY_ORDER)),
        )
    ),
    GroupSetting(
        Setting(
            "streams.assignment.interval.ms",
            Kind.INT,
            "1000",
            "How long the assignment of a streams group stands at least before another is computed.",
            AT_LEAST_0,
        ),
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    GroupSetting(
        Setting(
            "streams.heartbeat.interval.ms",
            Kind.INT,
            "5000",
            "How often members of a streams group are asked to send a heartbeat.",
            AT_LEAST_1,
        ),
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    GroupSetting(
        Setting(
            "streams.initial.rebalance.delay.ms",
            Kind.INT,
            "3000",
            "How long the streams group, when empty, waits for more members before the first assignment.",
            AT_LEAST_0,
        ),
        "group.streams.initial.rebalance.delay.ms",
        None,
        None,
    ),
    GroupSetting(
        Setting("streams.num.standby.replicas", Kind.INT, "0", "Standby tasks for each task with state.", AT_LEAST_0),
        "group.streams.num.standby.replicas",
        None,
        "group.streams.max.standby.replicas",
    ),
    GroupSetting(
        Setting(
            "streams.session.timeout.ms",
            Kind.INT,
            "45000",
            "After how long without a heartbeat a member of a streams group is taken for dead.",
            AT_LEAST_1,
        ),
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
)

GROUP_SETTINGS: Final[dict[str, GroupSetting]] = {group.setting.name: group for group in _ALL}

_LONGER: Final = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
)


class GroupSettings(NamedTuple):
    """What holds for one group; attribute names are the settings, dots as underscores."""

    consumer_assignment_interval_ms: int = 1_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    share_assignment_interval_ms: int = 1_000
    share_delivery_count_limit: int = 5
    share_heartbeat_interval_ms: int = 5_000
    share_session_timeout_ms: int = 45_000
    share_record_lock_duration_ms: int = 30_000
    share_partition_max_record_locks: int = 2_000
    share_renew_acknowledge_enable: bool = True
    share_auto_offset_reset: OffsetReset = OffsetReset(LATEST)
    share_isolation_level: str = READ_UNCOMMITTED
    share_delivery_order: str = ANY_ORDER
    streams_assignment_interval_ms: int = 1_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_num_standby_replicas: int = 0
    streams_session_timeout_ms: int = 45_000


def group_value(config: "BrokerConfig", name: str, overrides: Mapping[str, str]) -> Value:
    """A group's setting with its own overrides; raises `InvalidConfig`, KeyError for an unknown name."""
    group = GROUP_SETTINGS[name]
    text = overrides.get(name)
    if text is None and group.default is not None:
        return config.value(group.default)
    return group.setting.parse(group.setting.default if text is None else text)


def group_settings(config: "BrokerConfig", overrides: Mapping[str, str]) -> GroupSettings:
    """The settings of a group with these overrides; names that are no group's are ignored.

    The broker's bounds may have changed since a value was set: it is cut to them. Raises `InvalidConfig` when a value
    is refused.
    """
    values: dict[str, Any] = {
        group.setting.attribute: _bounded(config, group, group_value(config, name, overrides))
        for name, group in GROUP_SETTINGS.items()
    }
    values["share_auto_offset_reset"] = parse_offset_reset(values["share_auto_offset_reset"])
    return GroupSettings(**values)


def _bounded(config: "BrokerConfig", group: GroupSetting, value: Value) -> Value:
    if group.least is not None:
        value = max(cast("int", value), cast("int", config.value(group.least)))
    if group.most is not None:
        value = min(cast("int", value), cast("int", config.value(group.most)))
    return value


def check_group_values(config: "BrokerConfig", overrides: Mapping[str, str]) -> None:
    """Check a group's overrides: names, values, the broker's bounds, and what they say together.

    Raises `InvalidConfig` with Kafka's words for the first that is refused.
    """
    for name in overrides:
        if name not in GROUP_SETTINGS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: group_value(config, name, overrides) for name in GROUP_SETTINGS}
    for name, group in GROUP_SETTINGS.items():
        value = values[name]
        if group.least is not None and cast("int", value) < cast("int", config.value(group.least)):
            raise InvalidConfig(f"{name} must be greater than or equal to {group.least}")
        if group.most is not None and cast("int", value) > cast("int", config.value(group.most)):
            raise InvalidConfig(f"{name} must be less than or equal to {group.most}")
    for longer, shorter in _LONGER:
        if cast("int", values[longer]) <= cast("int", values[shorter]):
            raise InvalidConfig(f"{longer} must be greater than {shorter}")


def check_group_defaults(config: "BrokerConfig") -> None:
    """Check that what the broker gives groups lies within its own bounds; raises `InvalidConfig` in Kafka's words."""

    def number(name: str) -> int:
        return cast("int", config.value(name))

    for group in _ALL:
        if group.default is None or group.most is None:
            continue
        for greater in (group.most, group.default):
            if group.least is not None and number(greater) < number(group.least):
                raise InvalidConfig(f"{greater} must be greater than or equal to {group.least}")
        if number(group.default) > number(group.most):
            raise InvalidConfig(f"{group.default} must be less than or equal to {group.most}")
    for longer, shorter in _LONGER:
        if number(f"group.{shorter}") >= number(f"group.{longer}"):
            raise InvalidConfig(f"group.{shorter} must be less than group.{longer}")
