"""`seek` of consumer groups and of share groups: its options, the moves that they ask for, and the report."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from ottla.cli.brokers.client import (
    Connection,
    connection_options,
    known_topics,
    offsets_at,
    partitions_of,
    present_ranges,
)
from ottla.cli.group.moving import move_columns, move_rows, parse_selection
from ottla.cli.terminal import exits
from ottla.cli.terminal.choices import INSTANT
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import json_option, note, print_json, print_rows
from ottla.cli.terminal.times import format_instant
from ottla.client.moving import Move, Target, describe_moves, move
from ottla.client.partition import Partition

_TARGETS: Final = ("to_earliest", "to_latest", "to_offset", "to_time", "shift_by")
_BEFORE: Final = (
    click.option(
        "--topic", "-t", "topics", metavar="TOPIC[:P,P]", multiple=True, help="Which topic, or partitions of it."
    ),
    click.option("--all-topics", is_flag=True, help="All topics the group has read."),
    click.option("--to-earliest", is_flag=True, help="To the oldest record."),
    click.option("--to-latest", is_flag=True, help="To the end."),
    click.option("--to-offset", metavar="N", type=click.IntRange(0), help="To this offset."),
    click.option("--to-time", metavar="TIME", callback=INSTANT, help="To a time: 10m or 2h (ago), or ISO 8601."),
)
_SHIFT: Final = click.option("--shift-by", type=int, metavar="N", help="By N records; negative goes back.")
_AFTER: Final = (
    click.option("--execute", is_flag=True, help="Do it. Without, nothing is changed."),
    json_option,
    connection_options,
)


@dataclass(frozen=True, slots=True)
class Seek:
    """A request to move a group: where to, and which topics and partitions; `topics` None: all it has read."""

    target: Target
    topics: Mapping[str, set[int]] | None
    execute: bool
    as_json: bool


def seek_options(*, shifts: bool = False) -> Callable[[Callable[[Connection, str, Seek], int]], Callable[..., Any]]:
    """Add the options of `seek`; the command gets them as a `Seek`, after the connection and the name of the group.

    `shifts`: with --shift-by.
    """

    def decorate(command: Callable[[Connection, str, Seek], int]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_seek(
            connection: Connection,
            group: str,
            topics: tuple[str, ...],
            all_topics: bool,
            execute: bool,
            as_json: bool,
            **to: Any,
        ) -> int:
            target = _target(to)
            if bool(topics) == all_topics:
                raise click.UsageError("name what to move: --topic TOPIC (repeatable) or --all-topics")
            try:
                selected = None if all_topics else parse_selection(topics)
            except ValueError as unclear:
                raise click.UsageError(str(unclear)) from None
            return command(connection, group, Seek(target, selected, execute, as_json))

        decorated: Callable[..., Any] = with_seek
        for option in reversed((*_BEFORE, *((_SHIFT,) if shifts else ()), *_AFTER)):
            decorated = option(decorated)
        return decorated

    return decorate


def _target(to: Mapping[str, Any]) -> Target:
    if sum(value is not None and value is not False for value in to.values()) != 1:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in _TARGETS if name in to)
        raise click.UsageError(f"name the target: one of {named}")
    return Target(to["to_earliest"], to["to_latest"], to["to_offset"], to["to_time"], to.get("shift_by"))


def moves_of(connection: Connection, positions: Mapping[Partition, int | None], seek: Seek) -> list[Move]:
    """The moves that are asked for, from the positions of the group. Raises CommandFailed."""
    admin = connection.admin()
    wanted = positions.keys() if seek.topics is None else _chosen(connection, seek.topics)
    ranges = present_ranges(connection, admin, wanted)
    time_ms = seek.target.time_ms
    at_time = {} if time_ms is None else offsets_at(connection, admin, ranges, time_ms)
    return [
        move(partition, positions.get(partition), *bounds, seek.target, at_time.get(partition))
        for partition, bounds in ranges.items()
    ]


def _chosen(connection: Connection, topics: Mapping[str, set[int]]) -> Iterable[Partition]:
    found = partitions_of(known_topics(connection.metadata(connection.admin()), topics))
    for topic, numbers in topics.items():
        absent = numbers - {partition.partition for partition in found if partition.topic == topic}
        if absent:
            raise CommandFailed(f"topic {topic!r} has no partition {min(absent)}")
    return [each for each in found if not topics[each.topic] or each.partition in topics[each.topic]]


def report(group: str, what: str, seek: Seek, moves: Sequence[Move], replayed: str, *, empty: str = "") -> int:
    """Print what the moves of a group come to; returns the exit code. `what` names its kind."""
    rows = move_rows(moves)
    if seek.as_json:
        print_json({"group": group, "executed": seek.execute, "partitions": rows})
        return exits.OK
    print_rows(rows, move_columns(replayed), empty=empty)
    when = f" ({format_instant(seek.target.time_ms)})" if seek.target.time_ms is not None else ""
    note(f"{what} {group!r}{when}: {describe_moves(moves, done=seek.execute)}")
    if not seek.execute:
        note("nothing was changed; add --execute to do it")
    return exits.OK
