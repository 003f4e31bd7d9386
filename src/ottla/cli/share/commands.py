"""`ottla share`: list and describe share groups, show and move where they start, delete them."""

from typing import Any, Final

import click

from ottla.admin import ShareGroup
from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options, present_ranges
from ottla.cli.group.kinds import Kind, exit_code, refuse_members
from ottla.cli.group.seeking import Seek, moves_of, report, seek_options
from ottla.cli.terminal.output import Row, columns_of, json_option, print_described, print_json, print_rows, yes_option
from ottla.client.moving import records_ahead

KIND: Final = Kind(
    "share",
    ("Empty", "Stable", "Dead"),  # Kafka's own words
    lambda admin: admin.list_share_groups(),
    lambda admin, name: admin.describe_share_group(name),
)
_FACTS: Final = ("group", "state", "epoch", "assignment_epoch", "assignor")


@click.group(cls=Verbs)
def command() -> None:
    """List, describe, move and delete share groups."""


command.add_command(KIND.list_command())


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@json_option
@connection_options
def describe(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show the members of a share group, and which partitions each reads."""
    with connection.broker_admin() as admin:
        described = [_described(KIND.existing(admin, name)) for name in names]
    if as_json:
        print_json(described)
        return
    columns = columns_of("member~ epoch# client host assigned~")
    for entry in described:
        facts = [(name, entry[name]) for name in _FACTS]
        print_described(
            "group", entry, facts, entry["members"], columns, empty="the group has no members at the moment"
        )


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
            group = KIND.existing(admin, name)
            found = admin.list_share_group_offsets(name)
            ranges = present_ranges(connection, connection.admin(), found)
            for partition, progress in sorted(found.items(), key=lambda item: item[0]):
                bounds = ranges.get(partition)
                rows.append(
                    {
                        "group": name,
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "start_offset": progress.start,
                        "end_offset": None if bounds is None else bounds[1],
                        "ahead": None if progress.start is None else records_ahead(progress.start, bounds),
                        "lag": progress.lag,
                        "readers": group.readers(partition),
                    }
                )
    columns = columns_of("group topic partition# start_offset# end_offset# ahead# lag# readers#")
    print_rows(rows, columns, as_json=as_json, empty="the group has read nothing yet")


@command.command()
@click.argument("group")
@seek_options()
def seek(connection: Connection, group: str, wanted: Seek) -> int:
    """Move where a share group starts.

    Shows what would be skipped or delivered again, and changes nothing without --execute. The group must have no
    running members; what it knew of deliveries is forgotten.
    """
    with connection.broker_admin() as admin:
        described = KIND.existing(admin, group)
        refuse_members(f"share group {group!r}", described, "stop them first (`ottla share describe` names them)")
        starts = {partition: each.start for partition, each in admin.list_share_group_offsets(group).items()}
        moves = moves_of(connection, starts, wanted)
        if wanted.execute and moves:
            admin.alter_share_group_offsets(group, {each.partition: each.to for each in moves})
    empty = "the group has read nothing yet; name what to move with --topic"
    return report(group, "share group", wanted, moves, "DELIVERED AGAIN", empty=empty)


@command.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], yes: bool) -> int:
    """Delete share groups with all they know of deliveries."""
    with connection.broker_admin() as admin:
        return exit_code(names, KIND.delete(admin, names, yes=yes))
