"""`ottla consume`: records from topics, as lines."""

import select
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import click
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.cli.brokers.client import Connection, connection_options, known_topics, offset_ranges, partitions_of
from ottla.cli.consume.reading import BrokersGone, EndOfLog, read_batches, store_positions
from ottla.cli.consume.starting import BEGINNING, END, Start, last_records, parse_offset, start_offsets
from ottla.cli.terminal import exits
from ottla.cli.terminal.choices import INSTANT
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.interruption import held_back
from ottla.cli.terminal.output import complain, note, on_terminal, plural, progress_wanted
from ottla.cli.terminal.progress import Progress
from ottla.cli.terminal.record_lines import IncomingRecord, TextOutput, for_terminal, to_json, unescape
from ottla.client.partition import Partition

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to read, and when to stop."""

    topics: tuple[str, ...]
    group: str | None
    start: Start
    partitions: tuple[int, ...]
    max_records: int | None
    timeout_s: float | None
    exit_at_end: bool
    isolation: str
    quiet: bool


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record. [default: with the next new one]")
@click.option("--offset", "-o", metavar="OFFSET", help="Start at: beginning, end, N, or -N for the last N of each.")
@click.option("--since", metavar="TIME", callback=INSTANT, help="Start at a time: 10m or 2h (ago), or ISO 8601.")
@click.option(
    "--partition", "-p", "partitions", metavar="N", type=click.IntRange(0), multiple=True, help="Only this; repeatable."
)
@click.option("--group", "-g", metavar="GROUP", help="Read as a member of a consumer group, and commit its offsets.")
@click.option("--max-messages", "-n", metavar="N", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--timeout", "timeout_s", metavar="SECONDS", type=click.FloatRange(min=0.1), help="Stop after silence.")
@click.option(
    "--exit-at-end",
    "-e",
    is_flag=True,
    help="Stop at the current end offsets; without a start option, begin at the earliest.",
)
@click.option("--topics", "show_topics", is_flag=True, help="Show each record's topic.")
@click.option("--timestamps", is_flag=True, help="Show timestamps.")
@click.option("--partitions", "show_partitions", is_flag=True, help="Show partitions.")
@click.option("--offsets", "show_offsets", is_flag=True, help="Show offsets.")
@click.option("--headers", is_flag=True, help="Show headers, as NAME:VALUE,...")
@click.option("--keys", "-k", is_flag=True, help="Show keys.")
@click.option("--separator", metavar="TEXT", default=r"\t", help=r"Between the parts of a line. [default: \t]")
@click.option("--null-marker", metavar="TEXT", default="null", help="Stands for a null key or value. [default: null]")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="[default: text]")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--isolation",
    type=click.Choice([READ_COMMITTED, READ_UNCOMMITTED]),
    default=READ_COMMITTED,
    help=f"Whether records of open and aborted transactions are left out. [default: {READ_COMMITTED}]",
)
@click.option("--quiet", "-q", is_flag=True, help="Write nothing to standard error unless something fails.")
@connection_options
def command(
    connection: Connection,
    topics: tuple[str, ...],
    from_beginning: bool,
    offset: str | None,
    since: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_messages: int | None,
    timeout_s: float | None,
    exit_at_end: bool,
    show_topics: bool,
    timestamps: bool,
    show_partitions: bool,
    show_offsets: bool,
    headers: bool,
    keys: bool,
    separator: str,
    null_marker: str,
    form: str,
    as_json: bool,
    isolation: str,
    quiet: bool,
) -> int:
    """Print the records of TOPIC..., one a line: the value, after the parts asked for, in the order of the options.

    Without --group the log is read and nothing is remembered. With it, reading goes on where the group stopped (a new
    group starts at the end, or with --from-beginning at the beginning), shared with its other members.
    """
    if [from_beginning, offset is not None, since is not None].count(True) > 1:
        raise click.UsageError("--from-beginning, --offset and --since exclude one another")
    if group is not None and (offset is not None or since is not None or partitions):
        raise click.UsageError(
            f"a group has its own positions: leave out --offset, --since and --partition, "
            f"or move it first with `ottla group seek {group} ...`"
        )
    plan = _Plan(
        topics=tuple(dict.fromkeys(topics)),
        group=group,
        start=_parse_start(from_beginning or exit_at_end, offset, since),
        partitions=tuple(sorted(set(partitions))),
        max_records=max_messages,
        timeout_s=timeout_s,
        exit_at_end=exit_at_end,
        isolation=isolation,
        quiet=quiet,
    )
    if as_json or form == "json":
        render: Callable[[IncomingRecord], bytes] = to_json
    else:
        render = TextOutput(
            topic=show_topics,
            timestamp=timestamps,
            partition=show_partitions,
            offset=show_offsets,
            headers=headers,
            key=keys,
            separator=unescape(separator),
            null_marker=null_marker.encode(),
        ).renderer()
    return _consume(connection, plan, render)


def _parse_start(from_beginning: bool, offset: str | None, since: int | None) -> Start:
    if offset is not None:
        return parse_offset(offset)
    if since is not None:
        return Start(since_ms=since)
    return Start(BEGINNING if from_beginning else END)


def _consume(connection: Connection, plan: _Plan, render: Callable[[IncomingRecord], bytes]) -> int:
    admin = connection.admin()
    partitions = partitions_of(known_topics(connection.metadata(admin), plan.topics))
    gone = BrokersGone()
    consumer = connection.consumer(
        group_id=plan.group or "ottla-cli",
        enable_auto_commit=plan.group is not None,
        auto_commit_interval_ms=1000,
        enable_auto_offset_store=False,
        auto_offset_reset="earliest" if plan.group is None or plan.start.place == BEGINNING else "latest",
        enable_partition_eof=plan.exit_at_end,
        isolation_level=plan.isolation,
        check_crcs=True,
        fetch_wait_max_ms=100 if plan.exit_at_end else 500,
        fetch_queue_backoff_ms=20,  # the default of a second halves the rate of a fast reader
        error_cb=gone,
    )
    until: EndOfLog | None = None
    total: int | None = None
    try:
        if plan.group is not None:
            until = _join(consumer, plan)
        else:
            until, total = _assign(connection, admin, consumer, plan, _chosen(plan, partitions))
        return _copy(consumer, plan, render, until, total, gone)
    finally:
        consumer.close()


def _chosen(plan: _Plan, partitions: list[Partition]) -> list[Partition]:
    if not plan.partitions:
        return partitions
    for topic in plan.topics:
        present = {partition.partition for partition in partitions if partition.topic == topic}
        absent = set(plan.partitions) - present
        if absent:
            raise CommandFailed(
                f"topic {topic!r} has no partition {min(absent)}; its {plural(len(present), 'partition')} count from 0"
            )
    return [partition for partition in partitions if partition.partition in plan.partitions]


def _join(consumer: Consumer, plan: _Plan) -> EndOfLog | None:
    until = EndOfLog() if plan.exit_at_end else None

    def on_assign(_consumer: Consumer, assigned: list[TopicPartition]) -> None:
        if until is not None:
            until.assigned = {Partition(each.topic, each.partition) for each in assigned}
            until.reached &= until.assigned

    consumer.subscribe(list(plan.topics), on_assign=on_assign)
    return until


def _assign(
    connection: Connection, admin: AdminClient, consumer: Consumer, plan: _Plan, partitions: list[Partition]
) -> tuple[EndOfLog | None, int | None]:
    """Start reading at the chosen offsets; returns where to stop and how many offsets lie before that."""
    ranges = offset_ranges(connection, admin, partitions, read_committed=plan.isolation == READ_COMMITTED)
    if plan.start.offset is not None and plan.start.offset < 0:
        starts = _last_records(connection, plan, ranges)
    else:
        starts = start_offsets(connection, admin, plan.start, ranges)
    until: EndOfLog | None = None
    total: int | None = None
    if plan.exit_at_end:
        until = EndOfLog(ends={partition: end for partition, (_, end) in ranges.items()}, assigned=set(partitions))
        for partition, offset in starts.items():
            until.passed(partition, offset)
        total = sum(max(0, ranges[partition][1] - offset) for partition, offset in starts.items())
    unread = [partition for partition in partitions if until is None or partition not in until.reached]
    consumer.assign([TopicPartition(each.topic, each.partition, starts[each]) for each in unread])
    if plan.start == Start(END):
        _say(plan, "waiting for new records (--from-beginning shows those that are there; Ctrl-C ends)")
    return until, total


def _last_records(
    connection: Connection, plan: _Plan, ranges: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, int]:
    assert plan.start.offset is not None
    consumer = connection.consumer(
        group_id="ottla-cli",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level=plan.isolation,
        auto_offset_reset="earliest",  # retention may take the beginning away meanwhile
        fetch_wait_max_ms=10,  # behind the last record there may be markers, and the broker is asked whether more comes
    )
    try:
        return last_records(consumer, ranges, -plan.start.offset)
    finally:
        consumer.close()


def _say(plan: _Plan, text: str) -> None:
    if not plan.quiet and progress_wanted():
        note(text)


def _copy(
    consumer: Consumer,
    plan: _Plan,
    render: Callable[[IncomingRecord], bytes],
    until: EndOfLog | None,
    total: int | None,
    gone: BrokersGone,
) -> int:
    count = 0
    person = on_terminal()
    write = sys.stdout.buffer.write
    batches = read_batches(consumer, max_records=plan.max_records, timeout_s=plan.timeout_s, until=until, gone=gone)
    # Drawn only beside output that goes elsewhere: a bar amid the records would be in the way.
    drawn = progress_wanted() and not person and not plan.quiet
    with Progress("read", "records", total=total, wanted=drawn) as progress:
        for records in batches:
            if records:
                lines = b"".join([render(record) for record in records])
                # Printed records are committed, and only printed ones, even when Ctrl-C comes in between.
                with held_back():
                    if person:
                        click.echo(for_terminal(lines), nl=False)
                    else:
                        write(lines)
                    sys.stdout.flush()
                    count += len(records)
                    if plan.group is not None:
                        store_positions(consumer, records)
            elif not person and _reader_is_gone():
                raise BrokenPipeError
            progress.show(count, count)
    if plan.max_records is not None and count < plan.max_records:
        at_end = until is not None and until.all_reached()
        why = "the log ends there" if at_end else f"nothing came for {plan.timeout_s:g} s"
        complain(f"{count:,} of {plural(plan.max_records, 'record')} read: {why}")
        return exits.FAILED
    _say(plan, plural(count, "record"))
    return exits.OK


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe without a reader; on a quiet topic, no write would reveal it."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))
