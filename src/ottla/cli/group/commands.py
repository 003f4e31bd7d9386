"""`ottla group`: list, describe, seek and delete consumer groups."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import click
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import (
    Connection,
    client_log,
    connection_options,
    known_topics,
    offset_ranges,
    offsets_at,
    partitions_of,
)
from ottla.cli.brokers.failures import explain
from ottla.cli.group.history import show_history
from ottla.cli.group.moving import Move, Target, describe_moves, move, move_columns, move_rows, parse_selection
from ottla.cli.terminal import exits, suggest
from ottla.cli.terminal.choices import one_of
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Column,
    Row,
    complain,
    confirm,
    json_option,
    note,
    on_terminal,
    plural,
    print_facts,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.terminal.times import format_instant, parse_instant_ms
from ottla.client.partition import Partition

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
    try:
        listing = connection.wait(admin.list_consumer_groups(request_timeout=connection.timeout_s, **wanted))
    except KafkaException as failure:
        reason = explain(failure.args[0], client_log.last_reason())
        raise CommandFailed(f"the groups cannot be listed: {reason}") from None
    for error in listing.errors or ():
        raise CommandFailed(f"the groups cannot be listed: {explain(error.args[0], client_log.last_reason())}")
    return {group.group_id: group for group in listing.valid or ()}


@command.command(name="list")
@click.option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty, ...")
@click.option("--type", "group_type", type=click.Choice(list(TYPES)), help="Only groups of this protocol.")
@json_option
@connection_options
def list_groups(connection: Connection, state: str | None, group_type: str | None, as_json: bool) -> None:
    """List consumer groups, of the classic protocol and of KIP-848."""
    wanted = None if state is None else one_of(state, [*STATES.values(), REBALANCING], "state")
    rows: list[Row] = [
        {"group": name, "state": _state(group), "protocol": _kind(group.type)}
        for name, group in sorted(_listed(connection, connection.admin(), group_type).items())
        if wanted in (None, _state(group))
    ]
    columns = (Column("group", "GROUP"), Column("state", "STATE"), Column("protocol", "PROTOCOL"))
    print_rows(
        rows,
        columns,
        as_json=as_json,
        empty=f"there are no {group_type or 'consumer'} groups" + (f" in state {state}" if state else ""),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """One group as the broker describes it, with its committed offsets."""

    name: str
    description: ConsumerGroupDescription | None
    committed: dict[Partition, int]

    @property
    def members(self) -> list[MemberDescription]:
        return self.description.members if self.description is not None else []


def _look(connection: Connection, admin: AdminClient, name: str, *, must_exist: bool = True) -> _Group:
    """Describe a group. Raises CommandFailed, naming the nearest group, for one that does not exist."""
    listed = _listed(connection, admin)
    if name not in listed:
        if must_exist:
            hint = suggest.did_you_mean(name, listed)
            where = "; `ottla group list` shows those that do, `ottla share list` share groups"
            raise CommandFailed(f"group {name!r} does not exist{hint or where}")
        return _Group(name, None, {})
    (future,) = admin.describe_consumer_groups([name], request_timeout=connection.timeout_s).values()
    request = [ConsumerGroupTopicPartitions(name)]
    (offsets,) = admin.list_consumer_group_offsets(request, request_timeout=connection.timeout_s).values()
    try:
        description = connection.wait(future)
        committed = connection.wait(offsets).topic_partitions or ()
    except KafkaException as failure:
        reason = explain(failure.args[0], client_log.last_reason())
        raise CommandFailed(f"group {name!r} cannot be described: {reason}") from None
    return _Group(
        name,
        description,
        {Partition(each.topic, each.partition): each.offset for each in committed if each.offset >= 0},
    )


def _ranges(
    connection: Connection, admin: AdminClient, wanted: Iterable[Partition]
) -> dict[Partition, tuple[int, int]]:
    """First and end offsets, leaving out partitions that no longer exist."""
    metadata = connection.metadata(admin)
    present = {partition for partition in wanted if _exists(metadata.topics.get(partition.topic), partition)}
    return offset_ranges(connection, admin, sorted(present))


def _exists(topic: Any, partition: Partition) -> bool:
    return topic is not None and partition.partition in topic.partitions


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
        group = _look(connection, admin, name)
        owners = {
            Partition(each.topic, each.partition): member
            for member in group.members
            for each in member.assignment.topic_partitions
        }
        ranges = _ranges(connection, admin, {*group.committed, *owners})
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
        first, end = ranges.get(partition, (None, None))
        lag = None
        if end is not None and first is not None:
            # Without a commit everything is still to be read; what was deleted meanwhile can no longer be.
            lag = max(0, end - max(first, committed if committed is not None else first))
        owner = owners.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": committed,
                "end_offset": end,
                "lag": lag,
                "member": owner.member_id if owner else None,
                "host": owner.host.removeprefix("/") if owner else None,
                "client": owner.client_id if owner else None,
            }
        )
    coordinator = description.coordinator if description is not None else None
    return {
        "group": group.name,
        "state": _state(description) if description is not None else None,
        "protocol": _kind(description.type) if description is not None else None,
        "assignor": description.partition_assignor if description is not None else None,
        "coordinator": coordinator.id if coordinator is not None else None,
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


def _print_group(entry: dict[str, Any], show_members: bool) -> None:
    if on_terminal():
        print_facts(
            [
                ("group", entry["group"]),
                ("state", entry["state"]),
                ("members", len(entry["members"])),
                ("assignor", entry["assignor"]),
                ("coordinator", f"broker {entry['coordinator']}"),
                ("lag", entry["lag"]),
            ]
        )
    group = {"group": entry["group"]}
    if show_members:
        columns = [
            Column("member", "MEMBER", long=True),
            Column("instance", "INSTANCE"),
            Column("client", "CLIENT"),
            Column("host", "HOST"),
            Column("assigned", "ASSIGNED", long=True),
        ]
        rows = entry["members"]
        empty = "the group has no members at the moment"
    else:
        columns = [
            Column("topic", "TOPIC"),
            Column("partition", "PARTITION", figures=True),
            Column("committed", "COMMITTED", figures=True),
            Column("end_offset", "END OFFSET", figures=True),
            Column("lag", "LAG", figures=True),
            Column("client", "CLIENT"),
            Column("host", "HOST"),
            Column("member", "MEMBER", long=True),
        ]
        rows = entry["partitions"]
        empty = "the group has committed nothing yet and is assigned nothing"
        if on_terminal():  # --members shows the long ids; without members no columns are needed
            columns = columns[:7] if entry["members"] else columns[:5]
    if not on_terminal():
        columns.insert(0, Column("group", "GROUP"))
    print_rows([{**group, **row} for row in rows], columns, empty=empty)


@command.command()
@click.argument("group")
@click.option("--topic", "-t", "topics", metavar="TOPIC[:P,P]", multiple=True, help="Which topic, or partitions of it.")
@click.option("--all-topics", is_flag=True, help="All topics the group has read.")
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To this offset.")
@click.option("--to-time", metavar="TIME", help="To a time: 10m or 2h (ago), or ISO 8601.")
@click.option("--shift-by", type=int, metavar="N", help="By N records; negative goes back.")
@click.option("--execute", is_flag=True, help="Do it. Without, nothing is changed.")
@json_option
@connection_options
def seek(
    connection: Connection,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
    execute: bool,
    as_json: bool,
) -> int:
    """Move a group's committed offsets.

    Shows what would be skipped or read again, and changes nothing without --execute. The group must have no running
    members. With --topic it may be a group that does not exist yet.
    """
    now_ms = time.time_ns() // 1_000_000
    target = _target(to_earliest, to_latest, to_offset, to_time, shift_by, now_ms)
    if bool(topics) == all_topics:
        raise click.UsageError("name what to move: --topic TOPIC (repeatable) or --all-topics")
    try:
        selected = parse_selection(topics)
    except ValueError as unclear:
        raise click.UsageError(str(unclear)) from None
    admin = connection.admin()
    looked = _look(connection, admin, group, must_exist=all_topics)
    if looked.members:
        raise CommandFailed(
            f"group {group!r} has {plural(len(looked.members), 'running member')}, which would overwrite the move; "
            "stop them first (`ottla group describe` names them)"
        )
    if all_topics:
        partitions = sorted(looked.committed)
        if not partitions:
            raise CommandFailed(f"group {group!r} has committed nothing yet; name what to move with --topic")
    else:
        found = partitions_of(known_topics(connection.metadata(admin), selected))
        for topic, numbers in selected.items():
            absent = set(numbers) - {partition.partition for partition in found if partition.topic == topic}
            if absent:
                raise CommandFailed(f"topic {topic!r} has no partition {min(absent)}")
        partitions = [each for each in found if not selected[each.topic] or each.partition in selected[each.topic]]
    ranges = _ranges(connection, admin, partitions)
    at_time = offsets_at(connection, admin, ranges, target.time_ms) if target.time_ms is not None else {}
    moves = [
        move(partition, looked.committed.get(partition), *ranges[partition], target, at_time.get(partition))
        for partition in sorted(ranges)
    ]
    return _seek(connection, admin, group, moves, target, execute=execute, as_json=as_json)


def _target(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, shift_by: int | None, now_ms: int
) -> Target:
    given = [to_earliest, to_latest, to_offset is not None, to_time is not None, shift_by is not None]
    if given.count(True) != 1:
        raise click.UsageError("name the target: one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by")
    try:
        time_ms = None if to_time is None else parse_instant_ms(to_time, now_ms)
    except ValueError as unclear:
        raise click.UsageError(f"--to-time: {unclear}") from None
    return Target(earliest=to_earliest, latest=to_latest, offset=to_offset, time_ms=time_ms, shift=shift_by)


def _seek(
    connection: Connection,
    admin: AdminClient,
    group: str,
    moves: list[Move],
    target: Target,
    *,
    execute: bool,
    as_json: bool,
) -> int:
    if execute:
        offsets = [TopicPartition(each.partition.topic, each.partition.partition, each.to) for each in moves]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        (future,) = admin.alter_consumer_group_offsets(request, request_timeout=connection.timeout_s).values()
        try:
            answered = connection.wait(future).topic_partitions or ()
        except KafkaException as failure:
            reason = explain(failure.args[0], client_log.last_reason())
            raise CommandFailed(f"group {group!r} was not moved: {reason}") from None
        refused = [each for each in answered if each.error is not None]
        if refused:
            worst = refused[0]
            raise CommandFailed(
                f"{plural(len(refused), 'partition')} not moved, first {worst.topic}-{worst.partition}: "
                + explain(worst.error)
            )
    rows = move_rows(moves)
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
        return exits.OK
    print_rows(rows, move_columns("READ AGAIN"))
    when = f" ({format_instant(target.time_ms)})" if target.time_ms is not None else ""
    note(f"group {group!r}{when}: {describe_moves(moves, done=execute)}")
    if not execute:
        note("nothing was changed; add --execute to do it")
    return exits.OK


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], yes: bool) -> int:
    """Delete groups with their committed offsets."""
    admin = connection.admin()
    for name in names:
        looked = _look(connection, admin, name)
        if looked.members:
            raise CommandFailed(
                f"group {name!r} has {plural(len(looked.members), 'running member')}; "
                "stop them first. Nothing was deleted"
            )
    what = f"group {names[0]!r} and its" if len(names) == 1 else f"{len(names)} groups and their"
    confirm(f"Delete {what} committed offsets?", yes=yes)
    code = exits.OK
    futures = admin.delete_consumer_groups(list(names), request_timeout=connection.timeout_s)
    for name, future in futures.items():
        try:
            connection.wait(future)
        except KafkaException as failure:
            complain(f"group {name!r} cannot be deleted: {explain(failure.args[0], client_log.last_reason())}")
            code = exits.FAILED
        else:
            note(f"group {name!r} deleted")
    return code
