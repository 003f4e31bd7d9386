"""A connector's configuration: the settings of the runtime, by Kafka Connect's names, and its own model's settings."""

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from ottla.connect.errors import ConfigError
from ottla.connect.runtime.plugins import ConnectorClass, kind_of
from ottla.connect.settings import CommaList, Settings, setting

_COMMON: Final = "Common"
_ERRORS: Final = "Error Handling"
_TOLERANCE: Final = "^(?i:none|all)$"


class RuntimeSettings(Settings):
    """What every connector has."""

    name: str = setting("The connector's name, of which there is one only.", importance="high", group=_COMMON)
    connector_class: str = setting("The connector: its name, or its class.", importance="high", group=_COMMON)
    tasks_max: int = setting("The most tasks it may have.", 1, importance="high", group=_COMMON, ge=1)
    key_converter: str | None = setting(
        "Converter of keys; the worker's by default.", None, importance="low", group=_COMMON
    )
    value_converter: str | None = setting(
        "Converter of values; the worker's by default.", None, importance="low", group=_COMMON
    )
    header_converter: str | None = setting(
        "Converter of headers; the worker's by default.", None, importance="low", group=_COMMON
    )
    transforms: CommaList = setting("Names of transforms, in their order.", [], importance="low", group="Transforms")
    predicates: CommaList = setting("Names of predicates for transforms.", [], importance="low", group="Predicates")
    errors_retry_delay_max_ms: int = setting("The longest pause between two tries, in ms.", 60000, group=_ERRORS, ge=1)
    errors_tolerance: str = setting(
        "none: the first bad record fails the task; all: bad records are skipped.",
        "none",
        group=_ERRORS,
        choices=["none", "all"],
        pattern=_TOLERANCE,
    )
    errors_log_enable: bool = setting("Whether bad records are named in the log.", False, group=_ERRORS)
    errors_log_include_messages: bool = setting(
        "Whether the log shows topic, partition and offset of bad records too.", False, group=_ERRORS
    )

    @property
    def tolerant(self) -> bool:
        """Whether bad records are skipped."""
        return self.errors_tolerance.lower() == "all"


class SourceRuntimeSettings(RuntimeSettings):
    """What every source has besides."""

    exactly_once_support: str = setting(
        "required: refuse to run otherwise than exactly once; requested: as far as it can.",
        "requested",
        group="Exactly Once Support",
        choices=["requested", "required"],
        pattern="^(?i:requested|required)$",
    )
    transaction_boundary: str = setting(
        "poll: a transaction ends when nothing more is there, or after a moment; interval: after "
        "transaction.boundary.interval.ms; connector: with each list that the connector yields.",
        "poll",
        group="Exactly Once Support",
        choices=["poll", "interval", "connector"],
        pattern="^(?i:poll|interval|connector)$",
    )
    transaction_boundary_interval_ms: int | None = setting(
        "The length of a transaction, in ms; by default offset.flush.interval.ms.",
        None,
        importance="low",
        group="Exactly Once Support",
    )
    topic_creation_groups: CommaList = setting(
        "Groups of topics that are made by settings of their own, topic.creation.GROUP.include and so on.",
        [],
        group="Topic Creation",
    )
    topic_creation_default_partitions: int | None = setting(
        "Partitions of topics that are made for this connector; -1: the brokers' default.", None, group="Topic Creation"
    )
    topic_creation_default_replication_factor: int | None = setting(
        "Replicas of topics that are made for this connector; -1: the brokers' default.", None, group="Topic Creation"
    )


class SinkRuntimeSettings(RuntimeSettings):
    """What every sink has besides."""

    topics: CommaList = setting("Topics to read, by commas.", [], importance="high", group=_COMMON)
    topics_regex: str | None = setting("Topics, by a regular expression.", None, importance="high", group=_COMMON)
    errors_deadletterqueue_topic_name: str = setting("Where bad records go; empty: nowhere.", "", group=_ERRORS)
    errors_deadletterqueue_topic_replication_factor: int = setting(
        "Replicas of that topic, when it is made; -1: the brokers' default.", -1, group=_ERRORS
    )
    errors_deadletterqueue_context_headers_enable: bool = setting(
        "Whether dead letters carry headers with the error and its place.", False, group=_ERRORS
    )


def runtime_model(connector: ConnectorClass) -> type[RuntimeSettings]:
    """The model of the runtime's settings for a connector."""
    return SourceRuntimeSettings if kind_of(connector) == "source" else SinkRuntimeSettings


def with_defaults(connector: ConnectorClass, config: Mapping[str, str]) -> dict[str, str]:
    """A configuration over the defaults of the connector."""
    return {**connector.defaults, **config}


def validated(model: type[Settings], config: Mapping[str, str]) -> tuple[Settings | None, dict[str, list[str]]]:
    """The settings, or for each setting what is wrong with it; "" holds what is about several."""
    try:
        return model.model_validate(config), {}
    except ValidationError as wrong:
        problems: dict[str, list[str]] = {}
        for each in wrong.errors():
            name = _alias(model, str(each["loc"][0])) if each["loc"] else ""
            problems.setdefault(name, []).append(_sentence(model, name, each, config))
        return None, problems


def parsed(model: type[Settings], config: Mapping[str, str]) -> Any:
    """The settings. Raises ConfigError about all that is wrong."""
    settings, problems = validated(model, config)
    if settings is None:
        texts = [f"{name}: {text}" if name else text for name, each in problems.items() for text in each]
        raise ConfigError("; ".join(texts), next(iter(problems)) or None)
    return settings


def _alias(model: type[Settings], name: str) -> str:
    field = model.model_fields.get(name)
    return field.alias or name if field is not None else name


def _sentence(model: type[Settings], name: str, problem: Any, config: Mapping[str, str]) -> str:
    if problem["type"] == "missing":
        return f'Missing required configuration "{name}" which has no default value.'
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = config.get(name)
    secret = is_secret(model, name)
    if value is None or secret or not name:
        return message
    return f"Invalid value {value} for configuration {name}: {message}"


def is_secret(model: type[Settings], name: str) -> bool:
    """Whether a setting is a password."""
    field = next((each for key, each in model.model_fields.items() if name in (each.alias, key)), None)
    return field is not None and "SecretStr" in str(field.annotation)


_OPEN: Final = (
    *("transforms.", "predicates.", "key.converter.", "value.converter.", "header.converter.", "topic.creation."),
    *("producer.override.", "consumer.override.", "admin.override.", "errors.", "config.action.reload", "task."),
    *("tasks.max.enforce", "offsets.storage.topic", "connector.plugin.version"),
)


def unknown_settings(connector: ConnectorClass, config: Mapping[str, str]) -> list[str]:
    """A sentence for each setting that neither the runtime nor the connector has, with the nearest that there is."""
    models = (runtime_model(connector), connector.settings_model)
    known = [field.alias or key for model in models for key, field in model.model_fields.items()]
    sentences = []
    for name in config:
        if name not in known and not name.startswith((*_OPEN, *connector.settings_model.open_names)):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            sentences.append(f"the setting {name} is unknown, and left alone{hint}")
    return sentences


def default_text(default: Any) -> str | None:
    """A default as configurations write it; None where there is none."""
    if default is PydanticUndefined or default is None:
        return None
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | tuple):
        return ",".join(map(str, default))
    return str(default)
