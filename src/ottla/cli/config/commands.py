"""`ottla config`: settings of topics, brokers and groups."""

from typing import Final

import click
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options, known_topics
from ottla.cli.brokers.settings import SOURCES, alter_settings, describe_settings, source_of
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.assignments import parse_assignments
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, note, on_terminal, plural, print_json, print_rows

ALL_BROKERS: Final = "all"
KINDS: Final = {
    "topic": ConfigResource.Type.TOPIC,
    "broker": ConfigResource.Type.BROKER,
    "group": ConfigResource.Type.GROUP,
}

kind_argument = click.argument("kind", type=click.Choice(list(KINDS)))
name_argument = click.argument("name")


@click.group(cls=Verbs)
def command() -> None:
    """Read and change settings of topics, brokers and groups."""


def _resources(
    connection: Connection, kind: str, name: str, *, all_brokers: bool = False
) -> tuple[ResourceType, list[str]]:
    """The resources meant, as the protocol names them. Raises CommandFailed for a topic or broker that is not there."""
    if kind == "group":
        return KINDS[kind], [name]
    metadata = connection.metadata(connection.admin())
    if kind == "topic":
        known_topics(metadata, [name])
        return KINDS[kind], [name]
    brokers = [str(broker) for broker in sorted(metadata.brokers)]
    if name == ALL_BROKERS and all_brokers:
        return KINDS[kind], brokers
    if name not in brokers:
        raise CommandFailed(f"there is no broker {name!r}; give one of {', '.join(brokers)}")
    return KINDS[kind], [name]


@command.command()
@kind_argument
@name_argument
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also settings that have their default.")
@json_option
@connection_options
def get(connection: Connection, kind: str, name: str, keys: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show settings: those that differ from the default, or the given KEYs.

    For brokers NAME is the broker's id. The output shows the source of each value.
    """
    resource, (resource_name,) = _resources(connection, kind, name)
    entries = describe_settings(connection, connection.admin(), resource, resource_name)
    for key in keys:
        if key not in entries:
            raise CommandFailed(f"{kind} setting {key!r} does not exist{suggest.did_you_mean(key, entries)}")
    rows: list[Row] = [
        {
            "key": key,
            "value": "(hidden)" if entry.is_sensitive else entry.value,
            "source": SOURCES[source_of(entry)],
            "read_only": bool(entry.is_read_only),
        }
        for key, entry in entries.items()
        if (key in keys if keys else everything or source_of(entry) is not ConfigSource.DEFAULT_CONFIG)
    ]
    if as_json:
        print_json({str(row["key"]): {key: value for key, value in row.items() if key != "key"} for row in rows})
        return
    if len(keys) == 1 and not on_terminal():
        click.echo(rows[0]["value"])
        return
    print_rows(
        rows,
        columns_of("key=SETTING value~ source=SET_BY"),
        empty=f"{kind} {name!r} has no settings of its own; --all shows the defaults",
    )


@command.command(name="set")
@kind_argument
@name_argument
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--unset", metavar="KEY", multiple=True, help="Return a setting to its default; repeatable.")
@click.option("--dry-run", is_flag=True, help="Let the broker check, and change nothing.")
@connection_options
def set_(
    connection: Connection,
    kind: str,
    name: str,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> int:
    """Change settings while the broker runs: all that are given, or none.

    For brokers NAME is the broker's id, or `all` for every broker that is there now.
    """
    settings = parse_assignments(assignments)
    if not settings and not unset:
        raise click.UsageError("name a change: KEY=VALUE, or --unset KEY")
    both = settings.keys() & set(unset)
    if both:
        raise click.UsageError(f"{min(both)} is both set and unset")
    resource, names = _resources(connection, kind, name, all_brokers=True)
    admin = connection.admin()
    changed = plural(len(settings) + len(unset), "setting")
    for each in names:
        alter_settings(connection, admin, resource, each, settings, unset, dry_run=dry_run)
        note(f"{kind} {each!r}: {changed} {'could be changed' if dry_run else 'changed'}")
    return exits.OK
