"""`ottla share`: list and describe share groups, show and move where they start, delete them."""

import time
from collections.abc import Collection
from typing import Any, Final

import click
from confluent_kafka.admin import AdminClient

from ottla.admin import Admin, ShareGroup
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import (
    Connection,
    connection_options,
    known_topics,
    offset_ranges,
    offsets_at,
    partitions_of,
)
from ottla.cli.group.kinds import check_exists, delete_groups, exit_code, print_groups
from ottla.cli.group.moving import Target, describe_moves, move, move_columns, move_rows, parse_selection
from ottla.cli.terminal import exits
from ottla.cli.terminal.choices import one_of
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Column,
    Row,
    json_option,
    note,
    on_terminal,
    plural,
    print_facts,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.terminal.times import parse_instant_ms
from ottla.client.partition import Partition

KIND: Final = "share"
STATES: Final = ("Empty", "Stable", "Dead")
"""Kafka's own words for the states of a share group."""


@click.group(cls=Verbs)
def command() -> None:
    """List, describe, move and delete share groups."""


@command.command(name="list")
@click.option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty.")
@json_option
@connection_options
def list_groups(connection: Connection, state: str | None, as_json: bool) -> None:
    """List share groups."""
    wanted = None if state is None else one_of(state, STATES, "state")
    with connection.broker_admin() as admin:
        print_groups(admin.list_share_groups(), KIND, wanted, as_json=as_json)


def _existing(admin: Admin, name: str) -> ShareGroup:
    """Raises CommandFailed, naming the nearest group, for one that does not exist."""
    check_exists(name, admin.list_share_groups(), KIND)
    return admin.describe_share_group(name)


# --- describe --------------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@json_option
@connection_options
def describe(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show the members of a share group, and which partitions each reads."""
    with connection.broker_admin() as admin:
        described = [_described(_existing(admin, name)) for name in names]
    if as_json:
        print_json(described)
        return
    columns = [
        Column("member", "MEMBER", long=True),
        Column("epoch", "EPOCH", figures=True),
        Column("client", "CLIENT"),
        Column("host", "HOST"),
        Column("assigned", "ASSIGNED", long=True),
    ]
    if not on_terminal():
        columns.insert(0, Column("group", "GROUP"))
    for entry in described:
        if on_terminal():
            facts = ("group", "state", "epoch", "assignment_epoch", "assignor")
            print_facts([(name.replace("_", " "), entry[name]) for name in facts])
        rows = [{"group": entry["group"], **member} for member in entry["members"]]
        print_rows(rows, columns, empty="the group has no members at the moment")


def _described(group: ShareGroup) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "members": [
            {
                "member": member.member,
                "epoch": member.epoch,
                "client": member.client,
                "host": member.host,
                "topics": list(member.topics),
                "assigned": [str(partition) for partition in member.assigned],
            }
            for member in group.members
        ],
    }


# --- offsets ---------------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@json_option
@connection_options
def offsets(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show where a share group starts in each partition, what lies ahead, and how much of that is not done (LAG).

    Records from the start offset on are not all to be delivered: some may be acknowledged already.
    """
    rows: list[Row] = []
    with connection.broker_admin() as admin:
        for name in names:
            group = _existing(admin, name)
            found = admin.list_share_group_offsets(name)
            ranges = _ranges(connection, connection.admin(), found)
            for partition, progress in sorted(found.items(), key=lambda item: item[0]):
                start = progress.start
                first, end = ranges.get(partition, (None, None))
                ahead = None
                if start is not None and first is not None and end is not None:
                    ahead = max(0, end - max(start, first))
                rows.append(
                    {
                        "group": name,
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "start_offset": start,
                        "end_offset": end,
                        "ahead": ahead,
                        "lag": progress.lag,
                        "readers": group.readers(partition),
                    }
                )
    columns = (
        Column("group", "GROUP"),
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("start_offset", "START OFFSET", figures=True),
        Column("end_offset", "END OFFSET", figures=True),
        Column("ahead", "AHEAD", figures=True),
        Column("lag", "LAG", figures=True),
        Column("readers", "READERS", figures=True),
    )
    print_rows(rows, columns, as_json=as_json, empty="the group has read nothing yet")


def _ranges(
    connection: Connection, admin: AdminClient, wanted: Collection[Partition]
) -> dict[Partition, tuple[int, int]]:
    """First and end offsets, leaving out partitions that no longer exist."""
    topics = connection.metadata(admin).topics
    present = [each for each in wanted if each.topic in topics and each.partition in topics[each.topic].partitions]
    return offset_ranges(connection, admin, sorted(present))


# --- seek ------------------------------------------------------------------------------------------------------


@command.command()
@click.argument("group")
@click.option("--topic", "-t", "topics", metavar="TOPIC[:P,P]", multiple=True, help="Which topic, or partitions of it.")
@click.option("--all-topics", is_flag=True, help="All topics the group has read.")
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To this offset.")
@click.option("--to-time", metavar="TIME", help="To a time: 10m or 2h (ago), or ISO 8601.")
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
    execute: bool,
    as_json: bool,
) -> int:
    """Move where a share group starts.

    Shows what would be skipped or delivered again, and changes nothing without --execute. The group must have no
    running members; what it knew of deliveries is forgotten.
    """
    target = _target(to_earliest, to_latest, to_offset, to_time)
    if bool(topics) == all_topics:
        raise click.UsageError("name what to move: --topic TOPIC (repeatable) or --all-topics")
    try:
        selected = parse_selection(topics)
    except ValueError as unclear:
        raise click.UsageError(str(unclear)) from None
    client = connection.admin()
    with connection.broker_admin() as admin:
        described = _existing(admin, group)
        if described.members:
            raise CommandFailed(
                f"share group {group!r} has {plural(len(described.members), 'running member')}; "
                "stop them first (`ottla share describe` names them)"
            )
        starts = {partition: each.start for partition, each in admin.list_share_group_offsets(group).items()}
        wanted = sorted(starts) if all_topics else _selected(connection, client, selected)
        ranges = _ranges(connection, client, wanted)
        at_time = offsets_at(connection, client, ranges, target.time_ms) if target.time_ms is not None else {}
        moves = [
            move(partition, starts.get(partition), *ranges[partition], target, at_time.get(partition))
            for partition in sorted(ranges)
        ]
        if execute and moves:
            admin.alter_share_group_offsets(group, {each.partition: each.to for each in moves})
    rows = move_rows(moves)
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
        return exits.OK
    empty = "the group has read nothing yet; name what to move with --topic"
    print_rows(rows, move_columns("DELIVERED AGAIN"), empty=empty)
    note(f"share group {group!r}: {describe_moves(moves, done=execute)}")
    if not execute:
        note("nothing was changed; add --execute to do it")
    return exits.OK


def _selected(connection: Connection, admin: AdminClient, selected: dict[str, set[int]]) -> list[Partition]:
    found = partitions_of(known_topics(connection.metadata(admin), selected))
    for topic, numbers in selected.items():
        absent = set(numbers) - {partition.partition for partition in found if partition.topic == topic}
        if absent:
            raise CommandFailed(f"topic {topic!r} has no partition {min(absent)}")
    return [each for each in found if not selected[each.topic] or each.partition in selected[each.topic]]


def _target(to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None) -> Target:
    given = [to_earliest, to_latest, to_offset is not None, to_time is not None]
    if given.count(True) != 1:
        raise click.UsageError("name the target: one of --to-earliest, --to-latest, --to-offset, --to-time")
    try:
        time_ms = None if to_time is None else parse_instant_ms(to_time, time.time_ns() // 1_000_000)
    except ValueError as unclear:
        raise click.UsageError(f"--to-time: {unclear}") from None
    return Target(earliest=to_earliest, latest=to_latest, offset=to_offset, time_ms=time_ms)


# --- delete ----------------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], yes: bool) -> int:
    """Delete share groups with all they know of deliveries."""
    with connection.broker_admin() as admin:
        return exit_code(names, delete_groups(admin, names, KIND, lambda name: _existing(admin, name), yes=yes))
