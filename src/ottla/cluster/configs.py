"""PURE. Changes of settings at runtime: which are allowed, and what a resource's settings are afterwards.

A broker's settings can be changed for one broker or for all; for a running broker its own win over those for all,
and both win over its properties file (KIP-226). Settings without effect here are changed as in Kafka, but for those
that ask for protection which does not exist. A group need not be there to have settings, and they outlive it.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from ottla.cluster.commands import SetConfigs
from ottla.cluster.controller import check_topic_name
from ottla.cluster.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from ottla.config.authorizer import AUTHORIZER, AUTHORIZER_SETTINGS
from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.changeable import check_values, problem_with_names
from ottla.config.client_metrics_settings import subscription
from ottla.config.group_settings import GROUP_SETTINGS, check_group_values
from ottla.config.listener_changes import check_internal_listeners, check_listeners
from ottla.config.protection import UNPROTECTED, asked_protection
from ottla.config.setting import Kind, Setting
from ottla.config.topic_settings import TOPIC_SETTINGS
from ottla.errors import InvalidConfig, InvalidRequest
from ottla.errors import UnknownTopicOrPartition as UnknownTopic
from ottla.ids import BrokerId, TopicName


class ConfigOperation(IntEnum):
    """What to do with one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEdit(NamedTuple):
    """One setting's change; `value` does not matter to DELETE."""

    name: str
    operation: ConfigOperation
    value: str | None


class ConfigChange(NamedTuple):
    """What shall happen to one resource's settings.

    `edits` change some and leave the rest; with `replace`, what is not among them goes.
    """

    resource_type: ResourceType
    name: str
    edits: Sequence[ConfigEdit]
    replace: bool = False


def plan_configs(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange, *, static: BrokerConfig
) -> SetConfigs:
    """Decide on a resource's settings.

    `config` is this broker's present configuration, `static` the content of its properties file.

    Raises `InvalidRequest`, `InvalidConfig`, `InvalidTopic` or `UnknownTopicOrPartition`, in Kafka's words.
    """
    check_no_duplicates(change.edits)
    check_values_given(change.edits)
    before = {} if change.replace else dict(image.config(change.resource_type, change.name))
    match change.resource_type:
        case ResourceType.TOPIC:
            if not change.name:
                raise InvalidRequest("Default topic resources are not allowed.")
            check_topic_name(change.name)
            after = _edited(
                before, change.edits, {name: topic.setting.kind for name, topic in TOPIC_SETTINGS.items()}, config
            )
            config.topics.check(after)
            if TopicName(change.name) not in image.topics:
                raise UnknownTopic(f"The topic '{change.name}' does not exist.")
        case ResourceType.BROKER:
            if change.name != CLUSTER_DEFAULT:
                check_broker_name(change.name, static.node_id)
            known = known_broker_settings()
            after = _edited(before, change.edits, {name: setting.kind for name, setting in known.items()}, None)
            _check_broker_values(image, config, static, change.name, after, known)
        case ResourceType.GROUP:
            if not change.name:
                raise InvalidRequest("Default group resources are not allowed.")
            after = _edited(
                before, change.edits, {name: group.setting.kind for name, group in GROUP_SETTINGS.items()}, config
            )
            check_group_values(config, after)
        case ResourceType.CLIENT_METRICS:
            after = _edited(before, change.edits, {}, config)  # Kafka appends to none of them, lists as they are
            if not change.name:
                raise InvalidRequest("Subscription name can't be empty")
            subscription(after)
        case ResourceType.USER | ResourceType.CLIENT | ResourceType.USER_CLIENT | ResourceType.IP:
            after = _edited(before, change.edits, {}, config)
        case _:
            raise InvalidRequest(f"Unknown resource type {change.resource_type}")
    return SetConfigs(change.resource_type, change.name, after)


def plan_configs_of_others(image: MetadataImage, change: ConfigChange) -> SetConfigs:
    """Decide on the settings of any broker, or of all, as a controller that is no broker: it knows none of their files.

    The broker that has them checks the values, before it forwards the request. Raises `InvalidRequest`,
    `InvalidConfig`.
    """
    check_no_duplicates(change.edits)
    check_values_given(change.edits)
    if change.name != CLUSTER_DEFAULT and not (change.name.isascii() and change.name.isdecimal()):
        raise InvalidRequest(f"Node id must be an integer, but it is: {change.name}")
    before = {} if change.replace else dict(image.config(change.resource_type, change.name))
    known = known_broker_settings()
    after = _edited(before, change.edits, {name: setting.kind for name, setting in known.items()}, None)
    same = [key for key, text in after.items() if before.get(key) == text]
    guarding = sorted((AUTHORIZER_SETTINGS & after.keys()) - set(same) - {AUTHORIZER})
    if guarding:  # or the right to change settings would be the right to do everything
        raise InvalidRequest(f"{guarding[0]} is read when the broker starts: change it in server.properties")
    problem = problem_with_names(after, known, cluster_default=change.name == CLUSTER_DEFAULT, unchanged=same)
    if problem is not None:
        raise InvalidRequest(problem)
    return SetConfigs(change.resource_type, change.name, after)


def check_no_duplicates(edits: Sequence[ConfigEdit]) -> None:
    """Raise `InvalidRequest` if a setting is there twice."""
    names = [edit.name for edit in edits]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")


def check_values_given(edits: Sequence[ConfigEdit]) -> None:
    """Raise `InvalidRequest` if a value is missing where one is needed."""
    missing = [edit.name for edit in edits if edit.value is None and edit.operation is not ConfigOperation.DELETE]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")


def check_broker_name(name: str, node_id: BrokerId) -> None:
    """Raise `InvalidRequest` unless `name` is this broker's number."""
    try:
        number = int(name)
    except ValueError:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}") from None
    if number != node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")


def effective_config(image: MetadataImage, static: BrokerConfig) -> BrokerConfig:
    """What holds for a broker now: its properties file, changed by what was set for all brokers and for itself."""
    for_all = image.config(ResourceType.BROKER, CLUSTER_DEFAULT)
    for_one = image.config(ResourceType.BROKER, str(static.node_id))
    if not for_all and not for_one:
        return static
    config = static.with_changes({**for_all, **for_one})
    check_internal_listeners(static, config)
    return config


def _edited(
    before: dict[str, str], edits: Sequence[ConfigEdit], kinds: Mapping[str, Kind], config: BrokerConfig | None
) -> dict[str, str]:
    after = dict(before)
    for edit in edits:
        value = edit.value or ""
        match edit.operation:
            case ConfigOperation.SET:
                after[edit.name] = value
            case ConfigOperation.DELETE:
                after.pop(edit.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                if kinds.get(edit.name) is not Kind.LIST:
                    if config is None:
                        doing = edit.operation.name.lower()
                        raise InvalidConfig(f"Config value {doing} is not allowed for config key: {edit.name}")
                    raise InvalidConfig(f"Can't {edit.operation.name} to key {edit.name} because its type is not LIST.")
                words = _words(after, edit.name, config)
                if edit.operation is ConfigOperation.APPEND:
                    words += [word for word in value.split(",") if word not in words]
                else:
                    words = [word for word in words if word not in value.split(",")]
                after[edit.name] = ",".join(words)
    return after


def _words(values: Mapping[str, str], name: str, config: BrokerConfig | None) -> list[str]:
    """The list as it is now; where the resource sets none, the one it inherits."""
    text = values.get(name)
    if text is not None:
        return [word.strip() for word in text.split(",") if word.strip()]
    inherited = config.topics.default(name) if config is not None and name in TOPIC_SETTINGS else None
    if inherited is None and name in BROKER_SETTINGS:
        inherited = tuple((BROKER_SETTINGS[name].default or "").split(","))
    return [word for word in inherited if word] if isinstance(inherited, tuple) else []


@cache
def known_broker_settings() -> Mapping[str, Setting]:
    """Every broker setting by name, whether Ottla acts on it or not."""
    from ottla.config.other_settings import OTHER_SETTINGS  # big, and seldom needed

    return BROKER_SETTINGS | OTHER_SETTINGS


def _check_broker_values(
    image: MetadataImage,
    config: BrokerConfig,
    static: BrokerConfig,
    name: str,
    after: Mapping[str, str],
    known: Mapping[str, Setting],
) -> None:
    is_default = name == CLUSTER_DEFAULT
    before = image.config(ResourceType.BROKER, name)
    same = [key for key, text in after.items() if before.get(key) == text]
    guarding = sorted((AUTHORIZER_SETTINGS & after.keys()) - set(same) - {AUTHORIZER})
    if guarding:  # or the right to change settings would be the right to do everything
        raise InvalidRequest(f"{guarding[0]} is read when the broker starts: change it in server.properties")
    problem = problem_with_names(after, known, cluster_default=is_default, unchanged=same)
    if problem is not None:
        raise InvalidRequest(problem)
    hidden: list[str] = []
    try:
        values = static.resolve(after)
        hidden += sorted(key for key in after if values[key] != after[key])
        check_values(values, known, static.given)
        for_other = image.config(ResourceType.BROKER, str(static.node_id) if is_default else CLUSTER_DEFAULT)
        changed = static.with_changes({**after, **for_other} if is_default else {**for_other, **after})
        check_listeners(config, changed)
        asking = {key: asked_protection(key, text) for key, text in values.items() if key not in same}
    except InvalidConfig as refused:
        if hidden:  # their values may be secrets, and are not shown
            named = [key for key in hidden if key not in same] or hidden
            raise InvalidRequest(
                f"Invalid value for configuration {', '.join(named)}: what it stands for is not taken, or contradicts "
                "another setting"
            ) from refused
        raise InvalidRequest(str(refused)) from refused
    unprotected = [f"{key}: {protection}" for key, protection in asking.items() if protection is not None]
    if unprotected and not static.allow_insecure:
        raise InvalidRequest("; ".join([*unprotected, UNPROTECTED]))
