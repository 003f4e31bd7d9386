"""`ottla cluster reassign`: move partitions between brokers, by a plan or to add and drain brokers (KIP-455)."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import click

from ottla.cli.client import Connection, connection_options
from ottla.cli.exits import CommandFailed
from ottla.cli.output import (
    Column,
    Row,
    json_option,
    note,
    on_terminal,
    plural,
    print_json,
    print_rows,
    progress_wanted,
)
from ottla.cli.partition import Partition
from ottla.cli.progress import Progress
from ottla.cli.reassignment_plan import Move, parse_plan, plan_adding, plan_document, plan_draining
from ottla.cli.reassignments import LOOK_AGAIN_S, Cluster, Held, Reassignments, wait_until_moved
from ottla.cli.requests import Requests
from ottla.cli.suggest import did_you_mean

KNOWN_WITHIN_S: Final = 5.0
LISTED: Final = 40
"""Moves that a person is shown one by one; of more, how many."""
STATUS_HINT: Final = "`ottla cluster reassign --status` shows how far they are, --cancel calls them off"


@click.command()
@click.argument("plan", metavar="[PLAN]", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option(
    "--add-broker", "added", metavar="ID", type=int, multiple=True, help="Give a broker its share of all replicas."
)
@click.option("--drain", "drained", metavar="ID", type=int, multiple=True, help="Move everything off a broker.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only partitions of this topic; repeatable.")
@click.option(
    "--throttle", metavar="BYTES", type=click.IntRange(min=1), help="Bytes per second that each broker copies at most."
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and move nothing.")
@click.option("--no-wait", is_flag=True, help="Return when the moves have begun; a throttle stays until --cancel.")
@click.option("--status", is_flag=True, help="Show what is being moved.")
@click.option("--cancel", is_flag=True, help="Call off what is being moved, and take throttles away.")
@json_option
@connection_options
def reassign(
    connection: Connection,
    plan: str | None,
    added: tuple[int, ...],
    drained: tuple[int, ...],
    topics: tuple[str, ...],
    throttle: int | None,
    dry_run: bool,
    no_wait: bool,
    status: bool,
    cancel: bool,
    as_json: bool,
) -> None:
    """Move partitions to other brokers while they are read and written.

    PLAN is a file (or - for standard input) as Kafka's kafka-reassign-partitions reads and writes it. Without one,
    --add-broker and --drain make a plan of as few moves as that needs, spread over racks; piped into a file, what
    --dry-run prints is such a PLAN. Waits until everything is moved; interrupted, the moves go on.
    """
    asked = [plan is not None, bool(added or drained), status, cancel]
    if sum(asked) != 1:
        raise click.UsageError("give one of PLAN, --add-broker and --drain, --status, --cancel")
    if (status or cancel) and (throttle or dry_run or no_wait):
        raise click.UsageError("--throttle, --dry-run and --no-wait go with a plan, --add-broker or --drain")
    as_json = as_json or not on_terminal()
    with Requests(connection) as requests:
        moving = Reassignments(connection, requests)
        cluster = moving.cluster()
        moving.check_served(cluster)
        _check_topics(cluster, topics)
        if status:
            _show_status(moving, cluster, topics, as_json=as_json)
            return
        if cancel:
            _cancel(moving, cluster, topics, as_json=as_json)
            return
        if plan is not None:
            moves = _from_file(plan, cluster, topics)
        else:
            moves = _planned(cluster, topics, added, drained)
            _check_at_rest(moving, moves)
        if dry_run:
            _show_plan(moves, as_json=as_json)
            return
        _move(moving, cluster, moves, throttle, wait=not no_wait, as_json=as_json)


# --- what to move ---


def _check_topics(cluster: Cluster, topics: Collection[str]) -> None:
    known = {partition.topic for partition in cluster.assignments}
    for topic in topics:
        if topic not in known:
            raise CommandFailed(f"topic {topic!r} does not exist{did_you_mean(topic, known)}")


def _from_file(plan: str, cluster: Cluster, topics: Collection[str]) -> list[Move]:
    try:
        with click.open_file(plan, encoding="utf-8") as file:
            planned = parse_plan(file.read(), cluster.assignments)
    except OSError as problem:
        raise CommandFailed(f"{_named(plan)} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except ValueError as problem:
        raise CommandFailed(f"{_named(plan)} cannot be used as a plan: {problem}") from None
    except KeyError as missing:
        (partition,) = missing.args
        known = {known.topic for known in cluster.assignments}
        hint = "" if partition.topic in known else did_you_mean(partition.topic, known)
        raise CommandFailed(f"{_named(plan)} moves {partition}, which does not exist{hint}") from None
    moves = [move for move in planned if not topics or move.partition.topic in topics]
    for move in moves:
        _check_alive(cluster, move.added, f"{_named(plan)} ({move.partition})")
    return [move for move in moves if move.replicas != move.before or move.places]


def _named(plan: str) -> str:
    return "standard input" if plan == "-" else str(Path(plan))


def _planned(cluster: Cluster, topics: Collection[str], added: Collection[int], drained: Collection[int]) -> list[Move]:
    both = set(added) & set(drained)
    if both:
        raise click.UsageError(f"broker {min(both)} is both added and drained")
    assignments = {
        partition: replicas
        for partition, replicas in cluster.assignments.items()
        if not topics or partition.topic in topics
    }
    _check_alive(cluster, added, "--add-broker")
    holders = {broker for replicas in cluster.assignments.values() for broker in replicas}
    for broker in drained:
        if broker not in holders and broker not in cluster.brokers:
            raise CommandFailed(f"--drain: there is no broker {broker}; there are {_numbers(cluster.brokers)}")
    moves = {move.partition: move for move in plan_draining(assignments, cluster.racks, drained)}
    now = {
        partition: moves[partition].replicas if partition in moves else replicas
        for partition, replicas in assignments.items()
    }
    racks = {broker: rack for broker, rack in cluster.racks.items() if broker not in drained}
    for move in plan_adding(now, racks, added):
        moves[move.partition] = Move(move.partition, assignments[move.partition], move.replicas)
    return sorted(moves.values())


def _check_at_rest(moving: Reassignments, moves: Sequence[Move]) -> None:
    """A plan is made of who holds what, and says so of nobody in the midst of a move."""
    for partition in moving.under_way().keys() & {move.partition for move in moves}:
        raise CommandFailed(f"{partition} is being moved already; {STATUS_HINT}")


def _check_alive(cluster: Cluster, brokers: Collection[int], where: str) -> None:
    absent = sorted(set(brokers) - cluster.brokers.keys())
    if absent:
        raise CommandFailed(f"{where}: broker {absent[0]} is not running; {_numbers(cluster.brokers)} are")


def _numbers(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


# --- showing ---


def _rows(moves: Sequence[Move]) -> list[Row]:
    return [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "before": list(move.before),
            "replicas": list(move.replicas),
        }
        for move in moves
    ]


COLUMNS: Final = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", figures=True),
    Column("before", "FROM"),
    Column("replicas", "TO"),
)


def _show_plan(moves: Sequence[Move], *, as_json: bool) -> None:
    if as_json:
        print_json(plan_document(moves))
        return
    print_rows(_rows(moves[:LISTED]), COLUMNS, empty="nothing has to be moved")
    if len(moves) > LISTED:
        note(f"and {plural(len(moves) - LISTED, 'partition')} more; pipe this into a file to see all of the plan")
    note(_summary(moves))


def _summary(moves: Sequence[Move]) -> str:
    copies = sum(len(move.added) for move in moves)
    return f"{plural(len(moves), 'partition')} would be changed, {plural(copies, 'replica')} copied" if moves else ""


def _show_status(moving: Reassignments, cluster: Cluster, topics: Collection[str], *, as_json: bool) -> None:
    going = {at: found for at, found in moving.under_way().items() if not topics or at.topic in topics}
    leaders: dict[int, list[Partition]] = {}
    copying: dict[int, list[Partition]] = {}
    for at, found in going.items():
        leaders.setdefault(cluster.leaders.get(at, -1), []).append(at)
        for broker in found.adding:
            copying.setdefault(broker, []).append(at)
    there = moving.held(cluster, leaders)
    copied = moving.held(cluster, copying)
    rows: list[Row] = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": list(found.replicas),
            "adding": list(found.adding),
            "removing": list(found.removing),
            "bytes": _size(there.get((cluster.leaders.get(at, -1), at))),
            "copied": min((_size(copied.get((broker, at))) or 0 for broker in found.adding), default=None),
        }
        for at, found in sorted(going.items())
    ]
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("replicas", "REPLICAS"),
        Column("adding", "ADDING"),
        Column("removing", "REMOVING"),
        Column("bytes", "BYTES", figures=True),
        Column("copied", "COPIED", figures=True),
    )
    print_rows(rows, columns, as_json=as_json, empty="nothing is being moved")


def _size(held: Held | None) -> int | None:
    return None if held is None else held.size_bytes


# --- doing ---


def _cancel(moving: Reassignments, cluster: Cluster, topics: Collection[str], *, as_json: bool) -> None:
    going = [at for at in moving.under_way() if not topics or at.topic in topics]
    refused = moving.begin(dict.fromkeys(going))
    moving.unthrottle(topics or {partition.topic for partition in cluster.assignments}, cluster)
    rows: list[Row] = [
        {"topic": at.topic, "partition": at.partition, "cancelled": at not in refused, "reason": refused.get(at)}
        for at in sorted(going)
    ]
    columns = (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("cancelled", "CANCELLED"),
        Column("reason", "REASON"),
    )
    print_rows(rows, columns, as_json=as_json, empty="nothing was being moved; nothing is throttled any more")
    if refused:
        raise CommandFailed(f"{len(refused)} of {plural(len(going), 'move')} could not be called off")


def _move(
    moving: Reassignments,
    cluster: Cluster,
    moves: Sequence[Move],
    throttle: int | None,
    *,
    wait: bool,
    as_json: bool,
) -> None:
    if throttle is not None and moves:
        moving.throttle(moves, cluster, throttle)
    topics = {move.partition.topic for move in moves}
    try:
        refused = moving.place(moves, cluster)
        refused |= moving.begin(
            {
                move.partition: move.replicas
                for move in moves
                if move.partition not in refused and move.replicas != move.before
            }
        )
    except CommandFailed:
        if throttle is not None:
            moving.unthrottle(topics, cluster)
        raise
    begun = [move for move in moves if move.partition not in refused]
    if wait and begun:
        _wait(moving, cluster, begun)
        if throttle is not None:
            moving.unthrottle(topics, cluster)
    after = _after(moving, begun) if wait else {}
    rows: list[Row] = [
        {**row, "state": _state(move, refused, after, wait=wait), "reason": refused.get(move.partition)}
        for move, row in zip(moves, _rows(moves), strict=True)
    ]
    columns = (*COLUMNS, Column("state", "STATE"), Column("reason", "REASON"))
    print_rows(rows, columns, as_json=as_json, empty="nothing has to be moved")
    elsewhere = sum(row["state"] == "elsewhere" for row in rows)
    if refused or elsewhere:
        raise CommandFailed(
            f"{len(refused)} of {plural(len(moves), 'partition')} were refused"
            + (f", and {elsewhere} ended elsewhere: someone else has moved them" if elsewhere else "")
        )
    if not wait and begun:
        note(f"{plural(len(begun), 'move')} begun; {STATUS_HINT}")


def _after(moving: Reassignments, moves: Sequence[Move]) -> dict[Partition, tuple[int, ...]]:
    """Who holds what now; brokers hear of the last move a little later than the controller makes it."""
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while True:
        after = moving.cluster().assignments
        if time.monotonic() > deadline or all(after.get(move.partition) == move.replicas for move in moves):
            return after
        time.sleep(LOOK_AGAIN_S)


def _state(move: Move, refused: Collection[Partition], after: dict[Partition, tuple[int, ...]], *, wait: bool) -> str:
    if move.partition in refused:
        return "refused"
    if not wait:
        return "begun"
    return "moved" if after.get(move.partition) == move.replicas else "elsewhere"


def _wait(moving: Reassignments, cluster: Cluster, moves: Sequence[Move]) -> None:
    leaders: dict[int, list[Partition]] = {}
    for move in moves:
        leaders.setdefault(cluster.leaders[move.partition], []).append(move.partition)
    sizes = {at: held.size_bytes for (_, at), held in moving.held(cluster, leaders).items()}
    total = sum(sizes.get(move.partition, 0) * len(move.added) for move in moves)
    try:
        with Progress(
            "moved", f"of {plural(len(moves), 'partition')}", total=total, wanted=progress_wanted()
        ) as progress:
            wait_until_moved(moving, moves, progress.show, sizes)
    except (KeyboardInterrupt, CommandFailed):
        note(f"the moves go on; {STATUS_HINT}")
        raise
