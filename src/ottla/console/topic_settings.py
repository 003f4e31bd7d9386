"""A topic's settings beside their defaults, and beside those of another topic."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource, ResourceType

from ottla.console.cluster import TIMEOUT_S, ClusterView

HIDDEN: Final = "(hidden)"
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "the broker, while it runs",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, while they run",
    ConfigSource.STATIC_BROKER_CONFIG: "the broker's file",
    ConfigSource.DEFAULT_CONFIG: "",
}


class Setting(NamedTuple):
    """A setting with its value, what it would be without the topic's own, and what sets it ("": its default)."""

    value: str
    otherwise: str | None
    source: str


class Compared(NamedTuple):
    """A setting of two topics; `theirs` None: no other topic is compared, or it has no such setting."""

    name: str
    mine: Setting | None
    theirs: Setting | None

    @property
    def differs(self) -> bool:
        """Whether the two topics have different values or, of one topic, whether it differs from the default."""
        if self.theirs is None or self.mine is None:
            return self.mine is None or self.mine.source == _SOURCES[ConfigSource.DYNAMIC_TOPIC_CONFIG]
        return self.mine.value != self.theirs.value


async def settings(view: ClusterView, topic: str) -> dict[str, Setting]:
    """The settings of a topic, by name. Raises KafkaException."""

    async def ask() -> dict[str, Setting]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = view.library.describe_configs([resource], request_timeout=TIMEOUT_S).values()
        return {name: _setting(entry) for name, entry in (await view.wait(future)).items()}

    return await view.shared.get(("topic settings", topic), ask)


def compared(mine: Mapping[str, Setting], theirs: Mapping[str, Setting] | None) -> list[Compared]:
    """All settings of both, those that differ first. PURE."""
    names = sorted({*mine, *(theirs or {})})
    rows = [Compared(name, mine.get(name), None if theirs is None else theirs.get(name)) for name in names]
    return sorted(rows, key=lambda each: (not each.differs, each.name))


def _setting(entry: ConfigEntry) -> Setting:
    if entry.is_sensitive:
        return Setting(HIDDEN, None, _source(entry.source))
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.UNKNOWN_CONFIG)
    others = [each for each in (entry.synonyms or {}).values() if ConfigSource(each.source) not in own]
    otherwise = min(others, key=lambda each: ConfigSource(each.source).value, default=None)
    return Setting(str(entry.value), None if otherwise is None else _otherwise(entry, otherwise), _source(entry.source))


def _otherwise(entry: ConfigEntry, synonym: ConfigEntry) -> str:
    """The value of a broker's setting, with its name where that has another unit: `log.retention.hours=168`."""
    is_same = synonym.name.removeprefix("log.").split(".")[-1] == entry.name.split(".")[-1]
    return str(synonym.value) if is_same else f"{synonym.name}={synonym.value}"


def _source(number: ConfigSource) -> str:
    return _SOURCES.get(ConfigSource(number), "unknown")
