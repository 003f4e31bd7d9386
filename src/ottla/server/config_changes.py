"""What AlterConfigs and IncrementalAlterConfigs have in common: several resources, each on its own."""

from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.cluster.commands import apply
from ottla.cluster.configs import (
    ConfigChange,
    ConfigEdit,
    ConfigOperation,
    check_no_duplicates,
    check_values_given,
    effective_config,
    plan_configs,
)
from ottla.cluster.image import ResourceType
from ottla.config.broker import BrokerConfig
from ottla.config.properties import PLACEHOLDER
from ottla.errors import InvalidRequest, OttlaError
from ottla.metadata.view import MetadataView
from ottla.server import loggers
from ottla.server.listeners import Listeners
from ottla.server.telemetry import Telemetry
from ottla.slices import Slices, Steps

_KEPT: Final = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)


class AskedChange(NamedTuple):
    """A resource and its edits, as numbers off the wire; an operation is None if it is no known one."""

    resource_type: int
    name: str
    edits: Sequence[tuple[str, ConfigOperation | None, str | None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the broker that change configuration."""

    config: BrokerConfig
    metadata: MetadataView
    listeners: Listeners
    telemetry: Telemetry
    slices: Slices


async def change_configs(
    parts: Parts, asked: Sequence[AskedChange], *, replace: bool, validate_only: bool
) -> list[OttlaError | None]:
    """Change the settings of each resource; answers in the order asked.

    With `replace` settings that are not mentioned are taken away, and loggers cannot be changed.
    """
    answers: list[OttlaError | None] = [None] * len(asked)
    often = Counter((change.resource_type, change.name) for change in asked)
    planned: dict[int, ConfigChange] = {}
    subscriptions: set[str] = set()
    for index, change in enumerate(asked):
        await parts.slices.pause()
        try:
            if often[change.resource_type, change.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            edits = await parts.slices.run(_edits(change))
            check_no_duplicates(edits)
            check_values_given(edits)
            if change.resource_type == ResourceType.BROKER_LOGGER and not replace:
                _change_loggers(change.name, edits, validate_only, parts)
            elif change.resource_type in _KEPT:
                if change.resource_type == ResourceType.CLIENT_METRICS:
                    parts.telemetry.check_room(subscriptions | {change.name})
                    subscriptions.add(change.name)
                wanted = ConfigChange(ResourceType(change.resource_type), change.name, edits, replace)
                await _check_security(wanted, parts)
                planned[index] = wanted
            else:
                raise InvalidRequest(f"Unknown resource type {change.resource_type}")
        except OttlaError as refused:
            answers[index] = refused
    results = await _alter(list(planned.values()), validate_only, parts)
    for index, result in zip(planned, results, strict=True):
        answers[index] = result
    return answers


async def _alter(changes: Sequence[ConfigChange], validate_only: bool, parts: Parts) -> list[OttlaError | None]:
    """Change settings; those of this broker's listeners only if its new sockets can be bound."""
    found = [(at, config) for at, change in enumerate(changes) if (config := _new_listeners(change, parts))]
    if not found:
        return await parts.metadata.alter_configs(changes, validate_only=validate_only)
    ((at, config),) = found  # a resource appears once, and this broker is one
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(parts.listeners.prepared(config))
        except InvalidRequest as refused:
            rest = [*changes[:at], *changes[at + 1 :]]
            answers = await parts.metadata.alter_configs(rest, validate_only=validate_only)
            return [*answers[:at], refused, *answers[at:]]
        return await parts.metadata.alter_configs(changes, validate_only=validate_only)


async def _check_security(change: ConfigChange, parts: Parts) -> None:
    """Raise `InvalidRequest` if a listener of this broker could not encrypt or authenticate after the change."""
    config = _config_after(change, parts)
    if config is None:
        return
    try:
        await parts.listeners.check_security(config)
    except InvalidRequest as refused:
        hidden = [edit.name for edit in change.edits if edit.value is not None and PLACEHOLDER.search(edit.value)]
        if not hidden:
            raise
        raise InvalidRequest(  # the reason may quote what they stand for, which may be a secret
            f"Invalid value for configuration {', '.join(hidden)}: a listener could not encrypt or authenticate with "
            "what it stands for"
        ) from refused


def _new_listeners(change: ConfigChange, parts: Parts) -> BrokerConfig | None:
    """This broker's settings after a change of its listeners; None for other changes, and for one to be refused."""
    config = _config_after(change, parts)
    return None if config is None or config.listeners == parts.metadata.config.listeners else config


def _config_after(change: ConfigChange, parts: Parts) -> BrokerConfig | None:
    """This broker's settings after a change; None for a change of something else, and for one to be refused."""
    metadata = parts.metadata
    if change.resource_type is not ResourceType.BROKER or change.name != str(metadata.broker_id):
        return None
    try:
        command = plan_configs(metadata.image, metadata.config, change, static=metadata.static_config)
        return effective_config(apply(metadata.image, [command]), metadata.static_config)
    except OttlaError:
        return None


def _edits(change: AskedChange) -> Steps[list[ConfigEdit]]:
    edits = []
    for name, operation, value in change.edits:
        if operation is None:
            raise InvalidRequest(f"Unknown operation on {name}")
        edits.append(ConfigEdit(name, operation, value))
        yield
    return edits


def _change_loggers(name: str, edits: Sequence[ConfigEdit], validate_only: bool, parts: Parts) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}") from None
    if node_id != parts.config.node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {parts.config.node_id}, but received {name}")
    for edit in edits:
        if edit.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequest(f"{edit.operation.name} operation is not allowed for the BROKER_LOGGER resource")
        loggers.check_level(edit.name, edit.value if edit.operation is ConfigOperation.SET else None)
    if not validate_only:
        for edit in edits:
            loggers.set_level(edit.name, edit.value if edit.operation is ConfigOperation.SET else None)
