"""What AlterConfigs and IncrementalAlterConfigs have in common: several resources, each on its own."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation, check_no_duplicates, check_values_given
from ottla.cluster.image import ResourceType
from ottla.errors import InvalidRequest, OttlaError
from ottla.server import loggers
from ottla.server.context import Services


class AskedChange(NamedTuple):
    """A resource and its edits, as numbers off the wire; an operation is None if it is no known one."""

    resource_type: int
    name: str
    edits: Sequence[tuple[str, ConfigOperation | None, str | None]]


async def change_configs(
    asked: Sequence[AskedChange], *, replace: bool, validate_only: bool, broker: Services
) -> list[OttlaError | None]:
    """Change the settings of each resource; answers in the order asked.

    With `replace` settings that are not mentioned are taken away, and loggers cannot be changed.
    """
    answers: list[OttlaError | None] = [None] * len(asked)
    often = Counter((change.resource_type, change.name) for change in asked)
    planned: dict[int, ConfigChange] = {}
    for index, change in enumerate(asked):
        try:
            if often[change.resource_type, change.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            edits = _edits(change)
            check_no_duplicates(edits)
            check_values_given(edits)
            if change.resource_type == ResourceType.BROKER_LOGGER and not replace:
                _change_loggers(change.name, edits, validate_only, broker)
            elif change.resource_type in (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP):
                planned[index] = ConfigChange(ResourceType(change.resource_type), change.name, edits, replace)
            else:
                raise InvalidRequest(f"Unknown resource type {change.resource_type}")
        except OttlaError as refused:
            answers[index] = refused
    results = await broker.metadata.alter_configs(list(planned.values()), validate_only=validate_only)
    for index, result in zip(planned, results, strict=True):
        answers[index] = result
    return answers


def _edits(change: AskedChange) -> list[ConfigEdit]:
    edits = []
    for name, operation, value in change.edits:
        if operation is None:
            raise InvalidRequest(f"Unknown operation on {name}")
        edits.append(ConfigEdit(name, operation, value))
    return edits


def _change_loggers(name: str, edits: Sequence[ConfigEdit], validate_only: bool, broker: Services) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}") from None
    if node_id != broker.config.node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {broker.config.node_id}, but received {name}")
    for edit in edits:
        if edit.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequest(f"{edit.operation.name} operation is not allowed for the BROKER_LOGGER resource")
        loggers.check_level(edit.name, edit.value if edit.operation is ConfigOperation.SET else None)
    if not validate_only:
        for edit in edits:
            loggers.set_level(edit.name, edit.value if edit.operation is ConfigOperation.SET else None)
