"""`ottla topic`: create, list, describe, alter, delete and trim."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import (
    Connection,
    client_log,
    connection_options,
    known_topics,
    offset_ranges,
    offsets_at,
    partitions_of,
    unknown_topic,
)
from ottla.cli.brokers.failures import error_name, explain
from ottla.cli.brokers.settings import alter_settings, changed_settings, describe_settings
from ottla.cli.terminal import exits
from ottla.cli.terminal.assignments import parse_assignments
from ottla.cli.terminal.choices import INSTANT
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import (
    Row,
    columns_of,
    complain,
    confirm,
    json_option,
    note,
    on_terminal,
    plural,
    print_described,
    print_json,
    print_rows,
    yes_option,
)
from ottla.cli.terminal.times import format_instant
from ottla.client.partition import Partition

if TYPE_CHECKING:
    from concurrent.futures import Future

_URL_SAFE = str.maketrans("+/", "-_")
PARTITION_COLUMNS = columns_of("partition# leader replicas in_sync first_offset# end_offset# records#")


@click.group(cls=Verbs)
def command() -> None:
    """Create, list, describe, alter, delete and trim topics."""


def _finish(connection: Connection, futures: "Mapping[str, Future[Any]]", done: str, failed: str) -> int:
    """Report each topic's outcome; the exit code is 0 if all succeeded."""
    code = exits.OK
    for name, future in futures.items():
        try:
            connection.wait(future)
        except KafkaException as failure:
            error = failure.args[0]
            reason = explain(error, client_log.last_reason())
            complain(f"topic {name!r} {failed}: {reason}")
            code = exits.FAILED
        else:
            note(f"topic {name!r} {done}")
    return code


def parse_replicas(text: str) -> list[list[int]]:
    """`1:2,2:3` as one list of broker ids per partition. Raises click.BadParameter."""
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not like 1:2,2:3 (broker ids of each partition)") from None


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--partitions", "-p", metavar="N", type=click.IntRange(1), help="Number of partitions. [default: the broker's]"
)
@click.option(
    "--replication-factor", "-r", metavar="N", type=click.IntRange(1), help="Copies of each. [default: the broker's]"
)
@click.option("--config", "-c", "assignments", metavar="KEY=VALUE", multiple=True, help="A topic setting.")
@click.option("--replica-assignment", metavar="IDS", help="Brokers of each partition, as 1:2,2:3.")
@click.option("--if-not-exists", is_flag=True, help="It is no failure when the topic exists.")
@click.option("--dry-run", is_flag=True, help="Let the broker check, and create nothing.")
@connection_options
def create(
    connection: Connection,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[str, ...],
    replica_assignment: str | None,
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create topics."""
    settings = parse_assignments(assignments)
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment already sets the numbers of partitions and replicas")
    admin = connection.admin()
    if if_not_exists:
        existing = connection.metadata(admin).topics
        for name in names:
            if name in existing:
                note(f"topic {name!r} exists already")
        names = tuple(name for name in names if name not in existing)
        if not names:
            return exits.OK
    if replica_assignment is not None:
        placed = parse_replicas(replica_assignment)
        topics = [NewTopic(name, len(placed), replica_assignment=placed, config=settings) for name in names]
    else:
        topics = [NewTopic(name, partitions or -1, replication_factor or -1, config=settings) for name in names]
    futures = admin.create_topics(
        topics,
        validate_only=dry_run,
        request_timeout=connection.timeout_s,
        operation_timeout=connection.timeout_s,
    )
    return _finish(connection, futures, "could be created" if dry_run else "created", "cannot be created")


@command.command(name="list")
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="Also topics whose names begin with __.")
@click.option("--names", is_flag=True, help="Nothing but the names.")
@json_option
@connection_options
def list_topics(connection: Connection, pattern: str | None, internal: bool, names: bool, as_json: bool) -> None:
    """List topics, all or those whose names match PATTERN (as in a shell: 'orders.*')."""
    metadata = connection.metadata(connection.admin())
    rows: list[Row] = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(metadata.topics.items())
        if (internal or not name.startswith("__")) and (pattern is None or fnmatch.fnmatchcase(name, pattern))
    ]
    columns = [*columns_of("topic")]
    if not names:
        columns += [*columns_of("partitions# replicas#")]
    if names and not as_json:
        for row in rows:
            click.echo(row["topic"])
        return
    print_rows(
        rows,
        columns,
        as_json=as_json,
        empty="there are no topics" + (f" like {pattern!r}" if pattern else "; `ottla topic create NAME` makes one"),
    )


def _topic_ids(connection: Connection, admin: AdminClient, names: Sequence[str]) -> dict[str, str]:
    """Topic ids by name; none where the broker knows no ids."""
    ids = {}
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=connection.timeout_s)
    for name, future in futures.items():
        # Kafka prints ids in the URL-safe alphabet of base 64, the client library in the other one.
        ids[name] = str(connection.wait(future, f"topic {name!r}").topic_id).translate(_URL_SAFE)
    return ids


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@connection_options
def describe(connection: Connection, names: tuple[str, ...], as_json: bool) -> None:
    """Show partitions, offsets, and the settings that differ from the default."""
    admin = connection.admin()
    topics = known_topics(connection.metadata(admin), names)
    ranges = offset_ranges(connection, admin, partitions_of(topics))
    ids = _topic_ids(connection, admin, names)
    described = []
    for topic in topics:
        name = str(topic.topic)
        settings = changed_settings(describe_settings(connection, admin, ConfigResource.Type.TOPIC, name))
        rows = []
        for number, partition in sorted(topic.partitions.items()):
            first, end = ranges[Partition(name, number)]
            rows.append(
                {
                    "partition": number,
                    "leader": partition.leader if partition.leader >= 0 else None,
                    "replicas": list(partition.replicas),
                    "in_sync": list(partition.isrs),
                    "first_offset": first,
                    "end_offset": end,
                    "records": end - first,
                }
            )
        described.append({"topic": name, "topic_id": ids.get(name), "settings": settings, "partitions": rows})
    if as_json:
        print_json(described)
        return
    for entry in described:
        _print_described(entry, len(described) > 1)


def _print_described(entry: dict[str, Any], several: bool) -> None:
    rows: list[dict[str, Any]] = entry["partitions"]
    facts = [
        ("topic", entry["topic"]),
        ("id", entry["topic_id"]),
        ("partitions", len(rows)),
        ("records", f"{sum(row['records'] for row in rows):,} (by offsets; compaction may leave fewer)"),
        *((f"  {key}", value) for key, value in entry["settings"].items()),
    ]
    print_described("topic", entry, facts, rows, PARTITION_COLUMNS)
    if several and on_terminal():
        click.echo()


@command.command()
@click.argument("name")
@click.option(
    "--partitions", "-p", metavar="N", type=click.IntRange(1), help="New total number of partitions (only ever more)."
)
@click.option("--config", "-c", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a topic setting.")
@click.option("--unset", metavar="KEY", multiple=True, help="Return a setting to its default.")
@connection_options
def alter(
    connection: Connection, name: str, partitions: int | None, assignments: tuple[str, ...], unset: tuple[str, ...]
) -> int:
    """Add partitions, or change settings."""
    if partitions is None and not assignments and not unset:
        raise click.UsageError("name a change: --partitions, --config or --unset")
    settings = parse_assignments(assignments)
    admin = connection.admin()
    (topic,) = known_topics(connection.metadata(admin), [name])
    if partitions is not None:
        present = len(topic.partitions)
        if partitions < present:
            raise CommandFailed(
                f"topic {name!r} has {present} partitions and a topic's partitions cannot be taken away; "
                "create a new topic with fewer"
            )
        if partitions == present:
            note(f"topic {name!r} has {plural(present, 'partition')} already")
        else:
            futures = admin.create_partitions(
                [NewPartitions(name, partitions)],
                request_timeout=connection.timeout_s,
                operation_timeout=connection.timeout_s,
            )
            outcome = _finish(connection, futures, f"has {partitions} partitions now", "cannot get more partitions")
            if outcome != exits.OK:
                return outcome
            note("records with keys go to other partitions from now on; those already written stay where they are")
    if settings or unset:
        alter_settings(connection, admin, ConfigResource.Type.TOPIC, name, settings, unset)
        note(f"topic {name!r}: {plural(len(settings) + len(unset), 'setting')} changed")
    return exits.OK


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="It is no failure when the topic does not exist.")
@yes_option
@connection_options
def delete(connection: Connection, names: tuple[str, ...], if_exists: bool, yes: bool) -> int:
    """Delete topics with all their records."""
    admin = connection.admin()
    metadata = connection.metadata(admin)
    missing = [name for name in names if name not in metadata.topics]
    if missing and not if_exists:
        raise CommandFailed(unknown_topic(missing[0], metadata.topics) + "; nothing was deleted")
    for name in missing:
        note(f"topic {name!r} does not exist")
    present = [name for name in names if name not in missing]
    if not present:
        return exits.OK
    if not yes:
        ranges = offset_ranges(connection, admin, partitions_of(known_topics(metadata, present)))
        records = sum(end - first for first, end in ranges.values())
        what = repr(present[0]) if len(present) == 1 else plural(len(present), "topic")
        confirm(f"Delete {what} with {plural(records, 'record')}?", yes=yes)
    futures = admin.delete_topics(present, request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s)
    return _finish(connection, futures, "deleted", "cannot be deleted")


@command.command()
@click.argument("name")
@click.option("--before-offset", metavar="N", type=click.IntRange(0), help="Delete the records before this offset.")
@click.option(
    "--before-time",
    "before_ms",
    metavar="TIME",
    callback=INSTANT,
    help="Delete the records before a time (10m ago, or ISO 8601).",
)
@click.option("--all", "everything", is_flag=True, help="Delete every record; the topic stays.")
@click.option(
    "--partition",
    "only",
    metavar="N",
    type=click.IntRange(0),
    multiple=True,
    help="Only in this partition; repeatable.",
)
@yes_option
@json_option
@connection_options
def trim(
    connection: Connection,
    name: str,
    before_offset: int | None,
    before_ms: int | None,
    everything: bool,
    only: tuple[int, ...],
    yes: bool,
    as_json: bool,
) -> int:
    """Delete a topic's oldest records, up to an offset or a time."""
    if [before_offset is not None, before_ms is not None, everything].count(True) != 1:
        raise click.UsageError("name the new first offset: one of --before-offset, --before-time, --all")
    if before_offset is not None and not only:
        raise click.UsageError("--before-offset counts within one partition: add --partition N")
    admin = connection.admin()
    partitions = partitions_of(known_topics(connection.metadata(admin), [name]))
    if only:
        absent = sorted(set(only) - {partition.partition for partition in partitions})
        if absent:
            raise CommandFailed(
                f"topic {name!r} has no partition {absent[0]}; its {plural(len(partitions), 'partition')} count from 0"
            )
        partitions = [partition for partition in partitions if partition.partition in only]
    ranges = offset_ranges(connection, admin, partitions)
    if before_ms is not None:
        targets = offsets_at(connection, admin, ranges, before_ms)
    elif before_offset is not None:
        targets = dict.fromkeys(partitions, before_offset)
    else:
        targets = {partition: end for partition, (_, end) in ranges.items()}
    beyond = [partition for partition in partitions if targets[partition] > ranges[partition][1]]
    if beyond:
        raise CommandFailed(
            f"partition {beyond[0]} ends at offset {ranges[beyond[0]][1]}, before {targets[beyond[0]]}; nothing deleted"
        )
    wanted = {partition: offset for partition, offset in targets.items() if offset > ranges[partition][0]}
    doomed = sum(offset - ranges[partition][0] for partition, offset in wanted.items())
    if not wanted:
        note("there is nothing to delete: no record lies before that" if not everything else "the topic is empty")
    else:
        before = f" from before {format_instant(before_ms)}" if before_ms is not None else ""
        confirm(f"Delete {plural(doomed, 'record')} of {name!r}{before}?", yes=yes)
    return _delete_records(connection, admin, wanted, ranges, as_json)


def _delete_records(
    connection: Connection,
    admin: AdminClient,
    wanted: Mapping[Partition, int],
    ranges: Mapping[Partition, tuple[int, int]],
    as_json: bool,
) -> int:
    futures = (
        admin.delete_records(
            [TopicPartition(topic, partition, offset) for (topic, partition), offset in wanted.items()],
            request_timeout=connection.timeout_s,
            operation_timeout=connection.timeout_s,
        )
        if wanted
        else {}
    )
    code = exits.OK
    rows: list[Row] = []
    for asked, future in sorted(futures.items(), key=lambda entry: entry[0].partition):
        partition = Partition(asked.topic, asked.partition)
        try:
            low_watermark = connection.wait(future).low_watermark
        except KafkaException as failure:
            name = error_name(failure.args[0])
            hint = " (its cleanup.policy is compact alone; deletion needs delete)" if name == "POLICY_VIOLATION" else ""
            complain(f"partition {partition} cannot be trimmed: {explain(failure.args[0])}{hint}")
            code = exits.FAILED
        else:
            deleted = low_watermark - ranges[partition][0]
            rows.append({"partition": partition.partition, "first_offset": low_watermark, "deleted": deleted})
    if rows or as_json:
        print_rows(
            rows,
            columns_of("partition# first_offset=FIRST_OFFSET_NOW# deleted#"),
            as_json=as_json,
        )
    return code
