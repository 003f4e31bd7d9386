"""PURE. Settings as in DescribeConfigs and CreateTopics: value, source, synonyms."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.cluster.configs import known_broker_settings
from ottla.cluster.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.changeable import LISTENER_OVERRIDE
from ottla.config.client_metrics_settings import CLIENT_METRICS_SETTINGS, client_metrics_value
from ottla.config.group_settings import GROUP_SETTINGS, group_value
from ottla.config.other_settings import OTHER_SETTINGS
from ottla.config.properties import PLACEHOLDER
from ottla.config.setting import Change, Kind, Setting, render_value
from ottla.config.topic_settings import TOPIC_SETTINGS, TopicSetting


class ConfigSource(IntEnum):
    """Where a value comes from (KIP-226, KIP-412, KIP-848)."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """A setting that gives, or in absence of the others would give, the value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigDescription(NamedTuple):
    """One setting as it holds; `synonyms` has the one that decides first."""

    setting: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


_SAME: Final[tuple[tuple[str, ...], ...]] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
_TEXTS: Final = (Kind.STRING, Kind.LIST, Kind.CLASS)
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: names for names in _SAME for name in names if name != "log.flush.scheduler.interval.ms"
}


class SettingsInForce:
    """The layers of this broker's settings at one moment."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, static: BrokerConfig) -> None:
        """`config` is what holds now, `static` what the broker was started with."""
        self._config = config
        self._layers: Sequence[tuple[ConfigSource, Mapping[str, str]]] = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, image.config(ResourceType.BROKER, str(static.node_id))),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, image.config(ResourceType.BROKER, CLUSTER_DEFAULT)),
            (ConfigSource.STATIC_BROKER_CONFIG, static.given),
        )

    def broker(self, names: Iterable[str] | None, *, cluster_default: bool = False) -> list[ConfigDescription]:
        """This broker's settings, or of all brokers what was set for all of them; `names` None for every one."""
        described: list[ConfigDescription] = []
        for setting in _chosen(self._broker_settings(), names):
            synonyms = self._synonyms(setting.name)
            value = self._config.rendered(setting.name) if setting.name in BROKER_SETTINGS else _kept(setting, synonyms)
            if cluster_default:
                synonyms = [known for known in synonyms if known.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
                if not synonyms:
                    continue
                value = synonyms[0].value
            elif setting.internal and names is None and not _is_set(synonyms):
                continue
            elif setting.kind in _TEXTS and _stands_for_another(synonyms):
                value = synonyms[0].value
            described.append(
                ConfigDescription(
                    setting,
                    None if setting.sensitive else value,
                    synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                    setting.change is Change.READ_ONLY,
                    tuple(synonyms),
                )
            )
        return described

    def _broker_settings(self) -> Mapping[str, Setting]:
        """All known settings, and unknown ones that were set for a plug-in or by mistake."""
        known = known_broker_settings()
        others = {name for _, layer in self._layers for name in layer if name not in known}
        return {**known, **{name: _unknown(name, known) for name in others}}

    def topic(self, overrides: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigDescription]:
        """A topic's settings, given its own; `names` None for every one."""
        described: list[ConfigDescription] = []
        for name, (setting, behind) in _chosen_topics(names):
            if setting.internal and name not in overrides:
                continue
            value = render_value(self._config.topics.value(name, overrides))
            synonyms = self._synonyms(behind[0].name) if behind else []
            if name in overrides:
                synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.TOPIC_CONFIG))
            source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
            described.append(ConfigDescription(setting, value, source, False, tuple(synonyms)))
        return described

    def group(self, overrides: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigDescription]:
        """A group's settings, given its own; `names` None for every one.

        What a group does not set itself has the source of the broker's setting behind it.
        """
        described: list[ConfigDescription] = []
        for name in sorted(GROUP_SETTINGS if names is None else GROUP_SETTINGS.keys() & set(names)):
            value = render_value(group_value(self._config, name, overrides))
            group = GROUP_SETTINGS[name]
            if group.default is None:
                synonyms = [ConfigSynonym(name, group.setting.default, ConfigSource.DEFAULT_CONFIG)]
            else:
                synonyms = self._synonyms(group.default)
            if name in overrides:
                synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.GROUP_CONFIG))
            described.append(ConfigDescription(group.setting, value, synonyms[0].source, False, tuple(synonyms)))
        return described

    def client_metrics(self, configs: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigDescription]:
        """A subscription's settings, given its own; `names` None for every one."""
        described: list[ConfigDescription] = []
        for setting in _chosen(CLIENT_METRICS_SETTINGS, names):
            value = render_value(client_metrics_value(setting.name, configs))
            own = ConfigSynonym(setting.name, value, ConfigSource.CLIENT_METRICS_CONFIG)
            synonyms = (own,) if setting.name in configs else ()
            source = own.source if synonyms else ConfigSource.DEFAULT_CONFIG
            described.append(ConfigDescription(setting, value, source, False, synonyms))
        return described

    def _synonyms(self, name: str) -> list[ConfigSynonym]:
        """What gives a broker's setting its value, layer by layer.

        As in Kafka the list begins with `name` itself: what stands before it under another name is left out.
        """
        override = LISTENER_OVERRIDE.fullmatch(name)
        names = _SYNONYMS.get(name, (name,)) if override is None else (name, override.group(1))

        def is_secret(synonym: str) -> bool:
            known = known_broker_settings()
            return (known.get(synonym) or _unknown(synonym, known)).sensitive

        found = [
            ConfigSynonym(synonym, None if is_secret(synonym) else layer[synonym], source)
            for source, layer in self._layers
            for synonym in names
            if synonym in layer
        ]
        for synonym in names:
            known = BROKER_SETTINGS.get(synonym) or OTHER_SETTINGS.get(synonym)
            default = None if known is None else known.default
            if default is not None:
                found.append(ConfigSynonym(synonym, default, ConfigSource.DEFAULT_CONFIG))
        start = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[start:]


def _unknown(name: str, known: Mapping[str, Setting]) -> Setting:
    """A setting that is none of the broker's own, which for a listener has the type of the one for all listeners."""
    override = LISTENER_OVERRIDE.fullmatch(name)
    base = None if override is None else known.get(override.group(1))
    return Setting(name, Kind.UNKNOWN if base is None else base.kind, None, "" if base is None else base.doc)


def _kept(setting: Setting, synonyms: Sequence[ConfigSynonym]) -> str | None:
    """The value of a setting without effect; one that was given stays as it is written."""
    text = synonyms[0].value if synonyms else None
    if text is not None and PLACEHOLDER.search(text):
        return text
    return render_value(setting.parse(synonyms[0].value)) if synonyms else None


def _stands_for_another(synonyms: Sequence[ConfigSynonym]) -> bool:
    """Whether a value that was altered has a placeholder. A text is shown as it was written then: what a provider has
    may be a secret, and the right to alter settings is not the right to read it."""
    decides = next(iter(synonyms), None)
    return (
        decides is not None
        and decides.source in (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        and decides.value is not None
        and PLACEHOLDER.search(decides.value) is not None
    )


def _is_set(synonyms: Iterable[ConfigSynonym]) -> bool:
    return any(known.source is not ConfigSource.DEFAULT_CONFIG for known in synonyms)


def _chosen(settings: Mapping[str, Setting], names: Iterable[str] | None) -> list[Setting]:
    if names is None:
        return [settings[name] for name in sorted(settings)]
    return [settings[name] for name in sorted(set(names)) if name in settings]


def _chosen_topics(names: Iterable[str] | None) -> list[tuple[str, TopicSetting]]:
    wanted = TOPIC_SETTINGS if names is None else set(names)
    return [(name, TOPIC_SETTINGS[name]) for name in sorted(wanted) if name in TOPIC_SETTINGS]
