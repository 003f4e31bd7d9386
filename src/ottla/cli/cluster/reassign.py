"""`ottla cluster reassign`: move partitions between brokers, by a plan or to add and drain brokers (KIP-455)."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from ottla.admin import ClientError, Cluster, Replica, RequestRefused
from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.cluster.reassignment_plan import Move, parse_plan, plan_adding, plan_document, plan_draining
from ottla.cli.cluster.reassignments import POLL_INTERVAL_S, Reassignments, wait_until_moved
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Column,
    Row,
    columns_of,
    json_option,
    note,
    on_terminal,
    plural,
    print_json,
    print_rows,
    progress_wanted,
)
from ottla.cli.terminal.progress import Progress
from ottla.cli.terminal.suggest import did_you_mean
from ottla.client.partition import Partition
from ottla.waiting import tries

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
@click.option("--status", is_flag=True, help="Show the reassignments in progress.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments in progress, and remove their throttles.")
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
    with connection.broker_admin() as admin:
        moving = Reassignments(connection, admin)
        cluster = moving.cluster()
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
    """Refuse a plan for a partition that is already moving: its replicas are not final yet."""
    for partition in moving.admin.list_reassignments().keys() & {move.partition for move in moves}:
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


COLUMNS: Final = columns_of("topic partition# before=FROM replicas=TO")


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
    going = {at: found for at, found in moving.admin.list_reassignments().items() if not topics or at.topic in topics}
    leaders: dict[int, list[Partition]] = {}
    copying: dict[int, list[Partition]] = {}
    for at, found in going.items():
        leaders.setdefault(_leader(cluster, at), []).append(at)
        for broker in found.adding:
            copying.setdefault(broker, []).append(at)
    there = moving.admin.describe_replicas(cluster, leaders)
    copied = moving.admin.describe_replicas(cluster, copying)
    rows: list[Row] = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": list(found.replicas),
            "adding": list(found.adding),
            "removing": list(found.removing),
            "bytes": _size(there.get((_leader(cluster, at), at))),
            "copied": min((_size(copied.get((broker, at))) or 0 for broker in found.adding), default=None),
        }
        for at, found in sorted(going.items())
    ]
    columns = columns_of("topic partition# replicas adding removing bytes# copied#")
    print_rows(rows, columns, as_json=as_json, empty="nothing is being moved")


def _leader(cluster: Cluster, partition: Partition) -> int:
    state = cluster.partitions.get(partition)
    return -1 if state is None or state.leader is None else state.leader


def _size(held: Replica | None) -> int | None:
    return None if held is None else held.size_bytes


# --- doing ---


def _cancel(moving: Reassignments, cluster: Cluster, topics: Collection[str], *, as_json: bool) -> None:
    going = [at for at in moving.admin.list_reassignments() if not topics or at.topic in topics]
    refused = moving.admin.alter_reassignments(dict.fromkeys(going))
    moving.unthrottle(topics or {partition.topic for partition in cluster.assignments}, cluster)
    rows: list[Row] = [
        {"topic": at.topic, "partition": at.partition, "cancelled": at not in refused, "reason": _reason(refused, at)}
        for at in sorted(going)
    ]
    columns = columns_of("topic partition# cancelled reason")
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
        refused |= moving.admin.alter_reassignments(
            {
                move.partition: move.replicas
                for move in moves
                if move.partition not in refused and move.replicas != move.before
            }
        )
    except (CommandFailed, ClientError):
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
        {**row, "state": _state(move, refused, after, wait=wait), "reason": _reason(refused, move.partition)}
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


def _reason(refused: Mapping[Partition, RequestRefused], partition: Partition) -> str | None:
    return str(refused[partition]) if partition in refused else None


def _after(moving: Reassignments, moves: Sequence[Move]) -> dict[Partition, tuple[int, ...]]:
    """The replicas of each partition after the moves; brokers learn of the last move a little later than the
    controller.
    """
    after: dict[Partition, tuple[int, ...]] = {}
    for _ in tries(KNOWN_WITHIN_S, every_s=POLL_INTERVAL_S):
        after = moving.admin.describe_cluster().assignments
        if all(after.get(move.partition) == move.replicas for move in moves):
            break
    return after


def _state(move: Move, refused: Collection[Partition], after: dict[Partition, tuple[int, ...]], *, wait: bool) -> str:
    if move.partition in refused:
        return "refused"
    if not wait:
        return "begun"
    return "moved" if after.get(move.partition) == move.replicas else "elsewhere"


def _wait(moving: Reassignments, cluster: Cluster, moves: Sequence[Move]) -> None:
    leaders: dict[int, list[Partition]] = {}
    for move in moves:
        leaders.setdefault(_leader(cluster, move.partition), []).append(move.partition)
    sizes = {at: held.size_bytes for (_, at), held in moving.admin.describe_replicas(cluster, leaders).items()}
    total = sum(sizes.get(move.partition, 0) * len(move.added) for move in moves)
    try:
        with Progress(
            "moved", f"of {plural(len(moves), 'partition')}", total=total, wanted=progress_wanted()
        ) as progress:
            wait_until_moved(moving.admin, moves, progress.show, sizes)
    except (KeyboardInterrupt, CommandFailed, ClientError):
        note(f"the moves go on; {STATUS_HINT}")
        raise
