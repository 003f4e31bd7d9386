"""Settings of topics, brokers and groups as the broker describes them (DescribeConfigs, IncrementalAlterConfigs)."""

from collections.abc import Iterable, Mapping

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from ottla.cli.brokers.client import Connection
from ottla.cli.terminal import suggest
from ottla.cli.terminal.exits import CommandFailed

SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "server.properties",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.GROUP_CONFIG: "group",
    ConfigSource.UNKNOWN_CONFIG: "unknown",
}
"""Where a value comes from, in a word or two."""


def source_of(entry: ConfigEntry) -> ConfigSource:
    """The source of a setting's value; the client gives it as a number."""
    return ConfigSource(entry.source)


def describe_settings(
    connection: Connection, admin: AdminClient, kind: ResourceType, name: str
) -> dict[str, ConfigEntry]:
    """All settings of one resource, sorted by name. Raises CommandFailed."""
    (future,) = admin.describe_configs([ConfigResource(kind, name)], request_timeout=connection.timeout_s).values()
    failure = f"the settings of {kind.name.lower()} {name!r} cannot be read"
    entries: dict[str, ConfigEntry] = connection.wait(future, failure)
    return dict(sorted(entries.items()))


def changed_settings(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """Those that were set on the resource itself rather than inherited."""
    return {
        name: entry.value for name, entry in entries.items() if source_of(entry) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def alter_settings(
    connection: Connection,
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    assignments: Mapping[str, str],
    unset: Iterable[str],
    *,
    dry_run: bool = False,
) -> None:
    """Set and unset settings of one resource, all or none. Raises CommandFailed."""
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in assignments.items()
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    known = describe_settings(connection, admin, kind, name)
    for change in changes:
        # A broker's refusal of an unknown name suggests nothing; what it describes are the names it knows.
        if change.name not in known:
            hint = suggest.did_you_mean(change.name, known)
            raise CommandFailed(f"{kind.name.lower()} setting {change.name!r} does not exist{hint}")
    resource = ConfigResource(kind, name, incremental_configs=changes)
    (future,) = admin.incremental_alter_configs(
        [resource], validate_only=dry_run, request_timeout=connection.timeout_s
    ).values()
    connection.wait(future, f"the settings of {kind.name.lower()} {name!r} cannot be changed")
