"""`ottla group`: list, describe, seek and delete consumer groups."""

from dataclasses import dataclass
from typing import Any, Final

import click
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, client_log, connection_options, present_ranges
from ottla.cli.brokers.failures import explain
from ottla.cli.group.history import show_history
from ottla.cli.group.kinds import delete_groups, exit_code, refuse_members
from ottla.cli.group.seeking import Seek, moves_of, report, seek_options
from ottla.cli.terminal import suggest
from ottla.cli.terminal.choices import one_of
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Column,
    Row,
    columns_of,
    json_option,
    note,
    on_terminal,
    plural,
    print_described,
    print_json,
    print_rows,
    yes_option,
)
from ottla.client.moving import records_ahead
from ottla.client.partition import Partition
from ottla.pipeline.task_names import TaskNames

STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.UNKNOWN: "Unknown",
}
"""Kafka's own words for the states of a group."""

REBALANCING: Final = "Rebalancing"
"""Assigning or Reconciling: the client library has no words for these two states of consumer groups (KIP-848)."""
TYPES: Final = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}


@click.group(cls=Verbs)
def command() -> None:
    """List, describe, seek and delete consumer groups."""


def _state(group: ConsumerGroupListing | ConsumerGroupDescription) -> str:
    state = ConsumerGroupState(group.state)
    if state is ConsumerGroupState.UNKNOWN and group.type == ConsumerGroupType.CONSUMER:
        return REBALANCING
    return STATES[state]


def _kind(group_type: object) -> str | None:
    name = str(getattr(group_type, "name", "UNKNOWN")).lower()
    return None if name == "unknown" else name


def _listed(
    connection: Connection, admin: AdminClient, group_type: str | None = None
) -> dict[str, ConsumerGroupListing]:
    wanted = {} if group_type is None else {"types": {TYPES[group_type]}}
    answer = admin.list_consumer_groups(request_timeout=connection.timeout_s, **wanted)
    listing = connection.wait(answer, "the groups cannot be listed")
    for error in listing.errors or ():
        raise CommandFailed(f"the groups cannot be listed: {explain(error.args[0], client_log.last_reason())}")
    return {group.group_id: group for group in listing.valid or ()}


@command.command(name="list")
@click.option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty, ...")
@click.option("--type", "group_type", type=click.Choice(list(TYPES)), help="Only groups of this protocol.")
@click.option("--all", "show_all", is_flag=True, help="Also the groups in which Spark's tasks keep their marks.")
@json_option
@connection_options
def list_groups(
    connection: Connection, state: str | None, group_type: str | None, show_all: bool, as_json: bool
) -> None:
    """List consumer groups, of the classic protocol and of KIP-848."""
    wanted = None if state is None else one_of(state, [*STATES.values(), REBALANCING], "state")
    tasks = TaskNames()
    rows: list[Row] = [
        {"group": name, "state": _state(group), "protocol": _kind(group.type), "task": tasks.task_of(name)}
        for name, group in sorted(_listed(connection, connection.admin(), group_type).items())
        if wanted in (None, _state(group))
    ]
    shown = rows if show_all or as_json else [row for row in rows if row["task"] is None]
    if len(shown) < len(rows):
        note(f"{plural(len(rows) - len(shown), 'group')} of Spark's tasks not shown; --all shows them")
    columns = columns_of("group state protocol task" if show_all else "group state protocol")
    print_rows(
        shown,
        columns,
        as_json=as_json,
        empty=f"there are no {group_type or 'consumer'} groups" + (f" in state {state}" if state else ""),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """One group as the broker describes it, with its committed offsets."""

    name: str
    description: ConsumerGroupDescription
    committed: dict[Partition, int]

    @property
    def members(self) -> list[MemberDescription]:
        return self.description.members


def _existing(connection: Connection, admin: AdminClient, name: str) -> _Group:
    """Describe a group. Raises CommandFailed, naming the nearest group, for one that does not exist."""
    listed = _listed(connection, admin)
    if name not in listed:
        hint = suggest.did_you_mean(name, listed)
        where = "; `ottla group list` shows those that do, `ottla share list` share groups"
        raise CommandFailed(f"group {name!r} does not exist{hint or where}")
    return _look(connection, admin, name)


def _look(connection: Connection, admin: AdminClient, name: str) -> _Group:
    (future,) = admin.describe_consumer_groups([name], request_timeout=connection.timeout_s).values()
    request = [ConsumerGroupTopicPartitions(name)]
    (offsets,) = admin.list_consumer_group_offsets(request, request_timeout=connection.timeout_s).values()
    failure = f"group {name!r} cannot be described"
    description = connection.wait(future, failure)
    committed = connection.wait(offsets, failure).topic_partitions or ()
    return _Group(
        name,
        description,
        {Partition(each.topic, each.partition): each.offset for each in committed if each.offset >= 0},
    )


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--members", "show_members", is_flag=True, help="Show the members rather than the partitions.")
@click.option("--history", is_flag=True, help="Show why the group has rebalanced, and what moved (Ottla's brokers).")
@json_option
@connection_options
def describe(connection: Connection, names: tuple[str, ...], show_members: bool, history: bool, as_json: bool) -> None:
    """Show a group's members, committed offsets and lag, or its last rebalances."""
    if history:
        if show_members:
            raise click.UsageError("--members and --history are two things to show; give one of them")
        show_history(connection, names, as_json=as_json)
        return
    admin = connection.admin()
    described = []
    for name in names:
        group = _existing(connection, admin, name)
        owners = {
            Partition(each.topic, each.partition): member
            for member in group.members
            for each in member.assignment.topic_partitions
        }
        ranges = present_ranges(connection, admin, {*group.committed, *owners})
        described.append(_described(group, owners, ranges))
    if as_json:
        print_json(described)
        return
    for entry in described:
        _print_group(entry, show_members)


def _described(
    group: _Group, owners: dict[Partition, MemberDescription], ranges: dict[Partition, tuple[int, int]]
) -> dict[str, Any]:
    description = group.description
    rows = []
    for partition in sorted({*group.committed, *owners}):
        committed = group.committed.get(partition)
        bounds = ranges.get(partition)
        owner = owners.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": committed,
                "end_offset": None if bounds is None else bounds[1],
                "lag": records_ahead(committed, bounds),
                "member": owner.member_id if owner else None,
                "host": owner.host.removeprefix("/") if owner else None,
                "client": owner.client_id if owner else None,
            }
        )
    return {
        "group": group.name,
        "state": _state(description),
        "protocol": _kind(description.type),
        "assignor": description.partition_assignor,
        "coordinator": description.coordinator.id,
        "lag": sum(int(row["lag"]) for row in rows if isinstance(row["lag"], int)),
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.host.removeprefix("/"),
                "assigned": [str(Partition(each.topic, each.partition)) for each in member.assignment.topic_partitions],
            }
            for member in group.members
        ],
        "partitions": rows,
    }


_MEMBER_COLUMNS: Final = columns_of("member~ instance client host assigned~")
_OFFSET_COLUMNS: Final = columns_of("topic partition# committed# end_offset# lag#")
_READER_COLUMNS: Final = columns_of("client host")


def _print_group(entry: dict[str, Any], show_members: bool) -> None:
    facts = [
        ("group", entry["group"]),
        ("state", entry["state"]),
        ("members", len(entry["members"])),
        ("assignor", entry["assignor"]),
        ("coordinator", f"broker {entry['coordinator']}"),
        ("lag", entry["lag"]),
    ]
    if show_members:
        empty = "the group has no members at the moment"
        print_described("group", entry, facts, entry["members"], _MEMBER_COLUMNS, empty=empty)
        return
    columns = [*_OFFSET_COLUMNS]
    if not on_terminal():
        columns += [*_READER_COLUMNS, Column("member", "MEMBER", long=True)]
    elif entry["members"]:  # --members shows the long ids
        columns += _READER_COLUMNS
    empty = "the group has committed nothing yet and is assigned nothing"
    print_described("group", entry, facts, entry["partitions"], columns, empty=empty)


@command.command()
@click.argument("group")
@seek_options(shifts=True)
def seek(connection: Connection, group: str, wanted: Seek) -> int:
    """Move a group's committed offsets.

    Shows what would be skipped or read again, and changes nothing without --execute. The group must have no running
    members. With --topic it may be a group that does not exist yet.
    """
    admin = connection.admin()
    committed: dict[Partition, int] = {}
    if wanted.topics is None or group in _listed(connection, admin):
        looked = _existing(connection, admin, group)
        committed = looked.committed
        advice = "stop them first (`ottla group describe` names them)"
        refuse_members(f"group {group!r}", looked, advice, because=", which would overwrite the move")
        if wanted.topics is None and not committed:
            raise CommandFailed(f"group {group!r} has committed nothing yet; name what to move with --topic")
    moves = moves_of(connection, committed, wanted)
    if wanted.execute:
        offsets = [TopicPartition(each.partition.topic, each.partition.partition, each.to) for each in moves]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        (future,) = admin.alter_consumer_group_offsets(request, request_timeout=connection.timeout_s).values()
        answered = connection.wait(future, f"group {group!r} was not moved").topic_partitions or ()
        refused = [each for each in answered if each.error is not None]
        if refused:
            worst = refused[0]
            raise CommandFailed(
                f"{plural(len(refused), 'partition')} not moved, first {worst.topic}-{worst.partition}: "
                + explain(worst.error)
            )
    return report(group, "group", wanted, moves, "READ AGAIN")


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], yes: bool) -> int:
    """Delete groups with their committed offsets."""
    groups = [_existing(connection, connection.admin(), name) for name in names]
    with connection.broker_admin() as admin:
        return exit_code(names, delete_groups(admin.delete_groups, names, groups, "group", with_offsets=True, yes=yes))
