"""`ottla storage`: format the directories of a node of a quorum, and look at them. Works on files; needs no broker."""

from pathlib import Path

import click

from ottla.cli.app import Verbs
from ottla.cli.brokers.node_settings import node_settings, pair, settings_options
from ottla.cli.terminal.exits import FAILED, OK, CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, note, plural, print_json, print_rows
from ottla.clock import SystemClock
from ottla.errors import InvalidConfig, sentence
from ottla.log.fs import RealFileSystem

FORMATTED_COLUMNS = columns_of("directory~ kind~ directory_id")
FOUND_COLUMNS = columns_of("directory~ cluster_id node_id# directory_id problem~")


@click.group(cls=Verbs)
def command() -> None:
    """Format the directories of a node of a quorum of controllers, and look at them."""


@command.command("format")
@settings_options
@click.option("--cluster-id", "-t", metavar="ID", required=True, help="The cluster's; the same on all nodes.")
@click.option("--standalone", "-s", is_flag=True, help="This controller is the first and only voter of its quorum.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="The first voters of the quorum; the same on all nodes.",
)
@click.option(
    "--no-initial-controllers", "-N", is_flag=True, help="This node finds its quorum, and may become a voter later."
)
@click.option("--release-version", "-r", metavar="RELEASE", help="The metadata.version: 3.3 to 4.3. [default: 4.3]")
@click.option(
    "--feature", "-f", "features", metavar="FEATURE=LEVEL", multiple=True, help="The level of a feature; repeatable."
)
@click.option(
    "--add-scram",
    "-S",
    "users",
    metavar="SCRAM-SHA-512=[name=...,password=...]",
    multiple=True,
    help="A user that a new cluster begins with; repeatable.",
)
@click.option("--ignore-formatted", "-g", is_flag=True, help="Leave directories that are formatted already.")
@json_option
def format_(
    file: Path,
    overrides: tuple[str, ...],
    cluster_id: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    release_version: str | None,
    features: tuple[str, ...],
    users: tuple[str, ...],
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    """Format the directories of a node of Ottla or Kafka, as kafka-storage.sh does.

    log.dirs and metadata.log.dir get the cluster, the node and an id of their own, and what a new cluster begins with.
    Nothing is written unless all of it can be.
    """
    from ottla.cluster.metadata_log.levels import NAMES
    from ottla.metadata.quorum import formatting
    from ottla.metadata.quorum.scram_arguments import argument_record

    if sum((standalone, initial_controllers is not None, no_initial_controllers)) > 1:
        raise click.UsageError("give one of --standalone, --initial-controllers and --no-initial-controllers")
    try:
        wishes = formatting.Wishes(
            cluster_id,
            standalone,
            no_initial_controllers,
            initial_controllers,
            release_version,
            {name: _level(level) for name, level in (pair("--feature", text) for text in features)},
            [argument_record(text) for text in users],
            ignore_formatted,
        )
        plan = formatting.format_node(RealFileSystem(), SystemClock(), node_settings(file, overrides), wishes)
    except (InvalidConfig, OSError) as problem:
        raise CommandFailed(sentence(problem)) from None
    rows: list[Row] = [
        {"directory": each.path, "kind": str(each.kind), "directory_id": each.directory_id} for each in plan.directories
    ]
    print_rows(rows, FORMATTED_COLUMNS, as_json=as_json)
    if rows:
        count = plural(len(rows), "directory", "directories")
        note(f"{count} formatted with metadata.version {NAMES[plan.metadata_version]}")
    else:
        note("all directories are formatted already")


@command.command()
@settings_options
@json_option
def info(file: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Show whose the directories of a node are, and what is wrong with them; ends with 1 if something is."""
    from ottla.metadata.quorum import formatting

    try:
        found = formatting.inspect(RealFileSystem(), node_settings(file, overrides))
    except InvalidConfig as problem:
        raise CommandFailed(sentence(problem)) from None
    rows: list[Row] = [
        {
            "directory": each.path,
            "cluster_id": each.owner.get("cluster.id"),
            "node_id": each.owner.get("node.id", each.owner.get("broker.id")),
            "directory_id": each.owner.get("directory.id"),
            "problem": each.problem,
        }
        for each in found
    ]
    print_rows(rows, FOUND_COLUMNS, as_json=as_json)
    return FAILED if any(each.problem for each in found) else OK


@command.command("random-uuid")
@json_option
def random_uuid(as_json: bool) -> None:
    """Print a new id for a cluster or a directory."""
    from ottla.log.meta_properties import random_id

    made = random_id()
    if as_json:
        print_json(made)
    else:
        click.echo(made)


def _level(text: str) -> int:
    if not text.isdecimal() or len(text) > 5:
        raise click.UsageError(f"the level of a feature is a number, not {text!r}")
    return int(text)
