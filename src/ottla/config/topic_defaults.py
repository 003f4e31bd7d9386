"""What topics without settings of their own get from a broker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import cast, final

from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.log import UNLIMITED, LogConfig, TimestampType
from ottla.config.setting import Value, parse_value
from ottla.config.topic_settings import TOPIC_SETTINGS, TopicSetting
from ottla.errors import InvalidConfig


@final
class TopicDefaults:
    """The topic settings that follow from one broker's settings; immutable."""

    def __init__(self, given: Mapping[str, str], value: Callable[[str], Value]) -> None:
        """`given`: the broker's settings that were set; `value`: any broker setting, by Kafka's name."""
        self._given = given
        self._value = value

    def default(self, name: str) -> Value:
        """The default of a topic's setting here: that of the first broker setting behind it which was set."""
        return self._defaults[name]

    def value(self, name: str, overrides: Mapping[str, str]) -> Value:
        """A topic's setting with its own overrides; raises `InvalidConfig`, KeyError for an unknown name."""
        text = overrides.get(name)
        return self.default(name) if text is None else TOPIC_SETTINGS[name].setting.parse(text)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Settings of the logs of a topic with these overrides; names that are no topic's are ignored.

        Raises `InvalidConfig` when a value is refused.
        """
        if not overrides:
            return self._default_log_config
        values = dict(self._defaults)
        for name, text in overrides.items():
            if name in values:
                values[name] = TOPIC_SETTINGS[name].setting.parse(text)
        return _log_config(values)

    def check(self, overrides: Mapping[str, str]) -> None:
        """Check a topic's overrides: names, values, and what they say together.

        Raises `InvalidConfig` with Kafka's words for the first that is refused.
        """
        for name in overrides:
            if name not in TOPIC_SETTINGS:
                raise InvalidConfig(f"Unknown topic config name: {name}")
        least = cast("int", self.value("min.compaction.lag.ms", overrides))
        most = cast("int", self.value("max.compaction.lag.ms", overrides))
        for name, text in overrides.items():
            TOPIC_SETTINGS[name].setting.parse(text)
        if least > most:
            raise InvalidConfig(
                f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
            )
        if self.value("remote.storage.enable", overrides):
            raise InvalidConfig(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )

    @cached_property
    def _defaults(self) -> dict[str, Value]:
        defaults = {name: self._of_broker(topic) for name, topic in TOPIC_SETTINGS.items()}
        if cast("int", defaults["retention.ms"]) < 0:
            defaults["retention.ms"] = UNLIMITED  # set by retention.hours, .minutes or .ms alike
        return defaults

    @cached_property
    def _default_log_config(self) -> LogConfig:
        return _log_config(self._defaults)

    def _of_broker(self, topic: TopicSetting) -> Value:
        for synonym in topic.synonyms:
            setting = BROKER_SETTINGS.get(synonym.name)
            if setting is not None and synonym.name in self._given:
                return _times(self._value(synonym.name), synonym.factor)
        for synonym in topic.synonyms:
            setting = BROKER_SETTINGS.get(synonym.name)
            if setting is not None and setting.default is not None:
                return _times(self._value(synonym.name), synonym.factor)
        return parse_value(topic.setting.name, topic.setting.kind, topic.setting.default)


def _log_config(values: Mapping[str, Value]) -> LogConfig:
    policies = cast("tuple[str, ...]", values["cleanup.policy"])
    segment_bytes = values["internal.segment.bytes"]
    return LogConfig(
        segment_bytes=cast("int", values["segment.bytes"] if segment_bytes is None else segment_bytes),
        segment_ms=cast("int", values["segment.ms"]),
        segment_jitter_ms=cast("int", values["segment.jitter.ms"]),
        segment_index_bytes=cast("int", values["segment.index.bytes"]),
        index_interval_bytes=cast("int", values["index.interval.bytes"]),
        preallocate=cast("bool", values["preallocate"]),
        flush_messages=cast("int", values["flush.messages"]),
        flush_ms=cast("int", values["flush.ms"]),
        flush_before_ack=cast("bool", values["flush.before.ack"]),
        retention_ms=cast("int", values["retention.ms"]),
        retention_bytes=cast("int", values["retention.bytes"]),
        file_delete_delay_ms=cast("int", values["file.delete.delay.ms"]),
        max_message_bytes=cast("int", values["max.message.bytes"]),
        message_timestamp_type=TimestampType(values["message.timestamp.type"]),
        message_timestamp_before_max_ms=cast("int", values["message.timestamp.before.max.ms"]),
        message_timestamp_after_max_ms=cast("int", values["message.timestamp.after.max.ms"]),
        compression_type=cast("str", values["compression.type"]),
        compression_gzip_level=cast("int", values["compression.gzip.level"]),
        compression_lz4_level=cast("int", values["compression.lz4.level"]),
        compression_zstd_level=cast("int", values["compression.zstd.level"]),
        compact="compact" in policies,
        delete="delete" in policies,
        delete_retention_ms=cast("int", values["delete.retention.ms"]),
        min_compaction_lag_ms=cast("int", values["min.compaction.lag.ms"]),
        max_compaction_lag_ms=cast("int", values["max.compaction.lag.ms"]),
        min_cleanable_dirty_ratio=cast("float", values["min.cleanable.dirty.ratio"]),
        min_insync_replicas=cast("int", values["min.insync.replicas"]),
        unclean_leader_election_enable=cast("bool", values["unclean.leader.election.enable"]),
    )


def _times(value: Value, factor: int) -> Value:
    if factor == 1 or not isinstance(value, int):
        return value
    return value if value < 0 else value * factor
