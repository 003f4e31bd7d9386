"""PURE: how topics are made that a source writes to, by the settings `topic.creation.*` (KIP-158)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from ottla.connect.errors import ConfigError
from ottla.connect.patterns import compiled

_PREFIX: Final = "topic.creation."
_GROUPS: Final = f"{_PREFIX}groups"
_DEFAULT: Final = "default"
_OWN: Final = ("include", "exclude", "partitions", "replication.factor")

_NOTHING: Final = re.compile("(?!)")


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Topics that are made alike. -1 for partitions or replicas: the brokers' default. settings: the topics' own."""

    include: Any
    exclude: Any
    partitions: int
    replicas: int
    settings: Mapping[str, str]

    def has(self, topic: str) -> bool:
        """Whether a topic of this name belongs to it."""
        return self.include.fullmatch(topic) is not None and self.exclude.fullmatch(topic) is None


class NewTopics:
    """The groups of a connector, in order; the last one takes every topic."""

    def __init__(self, groups: list[TopicGroup]) -> None:
        self._groups = groups

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self | None:
        """None if the connector configures nothing: the brokers create its topics. Raises ConfigError."""
        if not any(name.startswith(_PREFIX) for name in config):
            return None
        names = [each.strip() for each in config.get(_GROUPS, "").split(",")]
        named = [name for name in dict.fromkeys(names) if name and name != _DEFAULT]
        last = _group(_DEFAULT, config, {}, include=".*")
        inherited = {"partitions": str(last.partitions), "replication.factor": str(last.replicas)}
        return cls([*(_group(name, config, inherited) for name in named), last])

    def group(self, topic: str) -> TopicGroup:
        """How a topic is to be made."""
        return next(each for each in self._groups if each.has(topic))


def _group(name: str, config: Mapping[str, str], inherited: Mapping[str, str], include: str = "") -> TopicGroup:
    prefix = f"{_PREFIX}{name}."
    own = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    given = {**inherited, **own}
    return TopicGroup(
        include=compiled(include) if include else _pattern(prefix, "include", own),
        exclude=_NOTHING if include else _pattern(prefix, "exclude", own),
        partitions=_number(prefix, "partitions", given),
        replicas=_number(prefix, "replication.factor", given),
        settings={key: value for key, value in own.items() if key not in _OWN},
    )


def _pattern(prefix: str, key: str, given: Mapping[str, str]) -> Any:
    """The pattern of a comma-separated list; one that matches nothing for an empty list."""
    texts = [each.strip() for each in given.get(key, "").split(",") if each.strip()]
    try:
        return compiled("|".join(texts)) if texts else _NOTHING
    except re.error as wrong:
        raise ConfigError(f"{prefix}{key} is no regular expression: {wrong}", f"{prefix}{key}") from None


def _number(prefix: str, key: str, given: Mapping[str, str]) -> int:
    setting, text = f"{prefix}{key}", given.get(key, "").strip()
    if not text:
        raise ConfigError(f'Missing required configuration "{setting}" which has no default value.', setting)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number != -1 and number < 1:
        raise ConfigError(f"Invalid value {text} for configuration {setting}: a positive number, or -1", setting)
    return number
