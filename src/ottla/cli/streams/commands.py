"""`ottla streams`: list, describe and delete streams groups (KIP-1071)."""

from collections.abc import Iterable
from typing import Any, Final

import click

from ottla.admin import Admin, InternalTopic, StreamsGroup
from ottla.admin.operations.streams_groups import Tasks
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options, present_ranges
from ottla.cli.group.history import show_history
from ottla.cli.group.kinds import Kind, exit_code
from ottla.cli.terminal.output import (
    Column,
    Row,
    columns_of,
    json_option,
    note,
    print_described,
    print_json,
    yes_option,
)
from ottla.client.moving import records_ahead

KIND: Final = Kind(
    "streams",
    ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),  # Kafka's own words
    lambda admin: admin.list_streams_groups(),
    lambda admin, name: admin.describe_streams_group(name),
)
_FACTS: Final = ("group", "state", "epoch", "assignment_epoch", "topology_epoch", "lag")


@click.group(cls=Verbs)
def command() -> None:
    """List, describe and delete streams groups."""


command.add_command(KIND.list_command())


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--members", "show_members", is_flag=True, help="Show the members and their tasks.")
@click.option("--topology", "show_topology", is_flag=True, help="Show the subtopologies and their topics.")
@click.option("--history", is_flag=True, help="Show why the group has rebalanced, and what moved (Ottla's brokers).")
@json_option
@connection_options
def describe(
    connection: Connection,
    names: tuple[str, ...],
    show_members: bool,
    show_topology: bool,
    history: bool,
    as_json: bool,
) -> None:
    """Show what a streams group has read of each partition and its lag, its members and tasks, or its topology."""
    if [show_members, show_topology, history].count(True) > 1:
        raise click.UsageError("--members, --topology and --history are three things to show; give one of them")
    if history:
        show_history(connection, names, as_json=as_json)
        return
    with connection.broker_admin() as admin:
        described = [_described(connection, admin, KIND.existing(admin, name)) for name in names]
    if as_json:
        print_json(described)
        return
    shown = _members if show_members else _topology if show_topology else _partitions
    for entry in described:
        rows, columns, empty = shown(entry)
        print_described("group", entry, [(name, entry[name]) for name in _FACTS], rows, columns, empty=empty)


def _described(connection: Connection, admin: Admin, group: StreamsGroup) -> dict[str, Any]:
    partitions = _partition_rows(connection, admin, group)
    return {
        "group": group.group,
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "lag": sum(int(row["lag"]) for row in partitions if isinstance(row["lag"], int)),
        "members": [
            {
                "member": member.member,
                "epoch": member.epoch,
                "topology_epoch": member.topology_epoch,
                "process": member.process,
                "client": member.client,
                "host": member.host,
                "endpoint": member.endpoint,
                "active": _names(member.has.active),
                "standby": _names(member.has.standby),
                "warmup": _names(member.has.warmup),
                "target_active": _names(member.target.active),
                "target_standby": _names(member.target.standby),
                "target_warmup": _names(member.target.warmup),
            }
            for member in group.members
        ],
        "subtopologies": [
            {
                "subtopology": each.subtopology,
                "sources": list(each.sources),
                "repartition_sources": _sized(each.repartition_sources),
                "repartition_sinks": list(each.repartition_sinks),
                "changelogs": _sized(each.changelogs),
            }
            for each in group.subtopologies
        ],
        "partitions": partitions,
    }


def _names(tasks: Tasks) -> list[str]:
    """As Kafka Streams names its tasks: 0_2 is partition 2 of subtopology 0."""
    return [f"{subtopology}_{index}" for subtopology, index in tasks]


def _sized(topics: Iterable[InternalTopic]) -> list[dict[str, Any]]:
    return [{"topic": topic.topic, "partitions": topic.partitions} for topic in topics]


def _partition_rows(connection: Connection, admin: Admin, group: StreamsGroup) -> list[dict[str, Any]]:
    """What the group reads: committed offsets, what lies behind them, and which member reads it."""
    committed = admin.list_group_offsets(group.group)
    readers = group.readers()
    wanted = sorted({*committed, *readers})
    ranges = present_ranges(connection, connection.admin(), wanted)
    rows = []
    for partition in wanted:
        offset = committed.get(partition)
        bounds = ranges.get(partition)
        subtopology, member = readers.get(partition, (None, None))
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": offset,
                "end_offset": None if bounds is None else bounds[1],
                "lag": records_ahead(offset, bounds),
                "task": None if subtopology is None else f"{subtopology}_{partition.partition}",
                "member": None if member is None else member.member,
                "client": None if member is None else member.client,
                "host": None if member is None else member.host,
            }
        )
    return rows


Table = tuple[Iterable[Row], list[Column], str]
"""Rows, columns, and what a person reads if there are no rows."""


def _partitions(entry: dict[str, Any]) -> Table:
    columns = [*columns_of("topic partition# committed# end_offset# lag# task host member~")]
    return entry["partitions"], columns, "the group has committed nothing yet and has no tasks"


def _members(entry: dict[str, Any]) -> Table:
    columns = [*columns_of("member~ epoch# process~ host active~ standby~ warmup=WARM-UP~")]
    return entry["members"], columns, "the group has no members at the moment"


def _topology(entry: dict[str, Any]) -> Table:
    rows: list[Row] = []
    for each in entry["subtopologies"]:
        key = {"subtopology": each["subtopology"]}
        rows += [{**key, "role": "source", "topic": topic, "partitions": None} for topic in each["sources"]]
        for kind, role in (("repartition_sources", "repartition"), ("changelogs", "changelog")):
            rows += [{**key, "role": role, **topic} for topic in each[kind]]
        rows += [
            {**key, "role": "repartition sink", "topic": topic, "partitions": None}
            for topic in each["repartition_sinks"]
        ]
    columns = [*columns_of("subtopology role topic partitions#")]
    return rows, columns, "the group has no topology"


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], yes: bool) -> int:
    """Delete streams groups with their offsets and topologies; their internal topics stay."""
    with connection.broker_admin() as admin:
        deleted = KIND.delete(admin, names, yes=yes)
    internal = [
        topic.topic
        for group in deleted
        for each in group.subtopologies
        for topic in (*each.repartition_sources, *each.changelogs)
    ]
    if internal:
        note(f"its internal topics are still there: ottla topic delete {' '.join(internal)}")
    return exit_code(names, deleted)
