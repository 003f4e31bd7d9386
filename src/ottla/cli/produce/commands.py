"""`ottla produce`: lines from standard input or a file become records."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import click
from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigResource, NewTopic

from ottla.cli.brokers.client import Connection, connection_options, unknown_topic
from ottla.cli.brokers.failures import error_name
from ottla.cli.brokers.settings import describe_settings
from ottla.cli.produce.delivery import Deliveries
from ottla.cli.produce.lines import read_lines
from ottla.cli.terminal import exits
from ottla.cli.terminal.choices import INSTANT
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.interruption import Terminated
from ottla.cli.terminal.output import complain, note, plural, progress_wanted
from ottla.cli.terminal.progress import Progress
from ottla.cli.terminal.record_lines import BadLine, Headers, JsonInput, TextInput, unescape

DELIVERY_TIMEOUT_MS: Final = 60_000
LARGEST_RECORD_BYTES: Final = 100_000_000
"""Above every sensible max.message.bytes: the broker decides, not the client's default of 1 MB."""
DEFAULT_BATCH_BYTES: Final = 1_000_000
INTERRUPTED_FLUSH_S: Final = 10.0


def parse_headers(pairs: tuple[str, ...]) -> Headers:
    """`NAME=VALUE` arguments as headers. Raises click.UsageError."""
    headers: Headers = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"header {pair!r} is not NAME=VALUE")
        headers.append((name, value.encode()))
    return headers


class _Watch:
    """Warns once when the brokers become unreachable, instead of waiting in silence."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self, error: KafkaError) -> None:
        if error_name(error) == "_ALL_BROKERS_DOWN" and not self.told:
            self.told = True
            note(f"ottla: the broker does not answer; trying again for up to {DELIVERY_TIMEOUT_MS // 1000} s")


@click.command()
@click.argument("topic")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option("--key-separator", "-k", metavar="TEXT", help=r"Each line is KEY TEXT VALUE; '\t' is a tab.")
@click.option("--headers", "with_headers", is_flag=True, help="Each line begins with NAME:VALUE,... and a tab.")
@click.option("--header", "constant_headers", metavar="NAME=VALUE", multiple=True, help="A header for every record.")
@click.option("--json", "as_json", is_flag=True, help="Each line is an object as `consume --format json` prints it.")
@click.option("--null-marker", metavar="TEXT", help="A key or value with this text is null (a tombstone).")
@click.option(
    "--partition", "-p", metavar="N", type=click.IntRange(0), help="Write to this partition, whatever the key."
)
@click.option("--timestamp", metavar="TIME", callback=INSTANT, help="Timestamp of all records (10m ago, or ISO 8601).")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="[default: none]")
@click.option("--create", is_flag=True, help="Create the topic, with the broker's defaults, if it does not exist.")
@click.option("--quiet", "-q", is_flag=True, help="Write nothing unless something fails.")
@connection_options
def command(
    connection: Connection,
    topic: str,
    file: str,
    key_separator: str | None,
    with_headers: bool,
    constant_headers: tuple[str, ...],
    as_json: bool,
    null_marker: str | None,
    partition: int | None,
    timestamp: int | None,
    compression: str | None,
    create: bool,
    quiet: bool,
) -> int:
    """Write each line of FILE, or of standard input, as a record to TOPIC.

    Every record is acknowledged by all in-sync replicas (acks=all) and written once (idempotence). Keys choose the
    partition by murmur2, as the Java client does. Ctrl-C sends the records already read and reports how many were
    acknowledged.
    """
    if as_json and (key_separator is not None or with_headers or null_marker is not None):
        raise click.UsageError("--json lines carry key, headers and null themselves")
    if key_separator == "":
        raise click.UsageError("--key-separator cannot be empty")
    now_ms = time.time_ns() // 1_000_000
    fixed_headers = parse_headers(constant_headers)
    form: JsonInput | TextInput = (
        JsonInput(now_ms)
        if as_json
        else TextInput(
            None if key_separator is None else unescape(key_separator),
            with_headers,
            None if null_marker is None else null_marker.encode(),
        )
    )
    _require_topic(connection, topic, partition, create=create)
    largest_batch_bytes = _largest_batch_bytes(connection, topic)

    reliability = (
        {} if {"acks", "request.required.acks"} & connection.properties.keys() else {"enable_idempotence": True}
    )
    producer = connection.producer(
        **reliability,
        partitioner="murmur2_random",
        linger_ms=5,
        compression_type=compression or "none",
        message_timeout_ms=DELIVERY_TIMEOUT_MS,
        batch_size=min(DEFAULT_BATCH_BYTES, largest_batch_bytes),
        message_max_bytes=LARGEST_RECORD_BYTES,
        error_cb=_Watch(),
    )
    deliveries = Deliveries(producer, topic)

    with ExitStack() as stack:
        descriptor = sys.stdin.fileno() if file == "-" else stack.enter_context(open(file, "rb")).fileno()
        if os.isatty(descriptor) and not quiet:
            note("One record a line; Ctrl-D ends.")
        size_bytes = os.fstat(descriptor).st_size if file != "-" else None
        progress = stack.enter_context(
            Progress("produced", "records", total=size_bytes, wanted=progress_wanted() and not os.isatty(descriptor))
        )
        number = 0
        problem: str | None = None
        interruption: KeyboardInterrupt | None = None
        try:
            for number, line in _numbered(descriptor, deliveries, progress):
                record = form.parse(line)
                record.headers.extend(fixed_headers)
                if partition is not None:
                    record.partition = partition
                if timestamp is not None:
                    record.timestamp_ms = timestamp
                deliveries.send(record, number)
            deliveries.flush()
        except BadLine as bad:
            problem = f"line {number}: {bad}"
        except KeyboardInterrupt as stop:
            interruption = stop
        _settle(deliveries, in_hurry=interruption is not None)
    return _report(deliveries, problem, interruption, quiet=quiet)


def _require_topic(connection: Connection, topic: str, partition: int | None, *, create: bool) -> None:
    admin = connection.admin()
    metadata = connection.metadata(admin)
    known = metadata.topics.get(topic)
    if known is None:
        if not create:
            raise CommandFailed(f"{unknown_topic(topic, metadata.topics)} (--create makes it)")
        (future,) = admin.create_topics([NewTopic(topic, -1, -1)], request_timeout=connection.timeout_s).values()
        connection.wait(future)
        return
    if partition is not None and partition not in known.partitions:
        raise CommandFailed(
            f"topic {topic!r} has no partition {partition}; "
            f"its {plural(len(known.partitions), 'partition')} count from 0"
        )


def _largest_batch_bytes(connection: Connection, topic: str) -> int:
    """The topic's max.message.bytes, so that small records never share a batch that is refused for a large one."""
    try:
        settings = describe_settings(connection, connection.admin(), ConfigResource.Type.TOPIC, topic)
    except CommandFailed:  # one may be allowed to write and not to look at settings
        return DEFAULT_BATCH_BYTES
    entry = settings.get("max.message.bytes")
    return int(entry.value) if entry is not None and entry.value else DEFAULT_BATCH_BYTES


def _numbered(descriptor: int, deliveries: Deliveries, progress: Progress) -> Iterator[tuple[int, bytes]]:
    number = 0
    read_bytes = 0
    for lines in read_lines(descriptor):
        deliveries.poll()
        progress.show(deliveries.acknowledged, read_bytes)
        for line in lines:
            number += 1
            read_bytes += len(line) + 1
            if not number & 1023:
                deliveries.poll()
            yield number, line


def _settle(deliveries: Deliveries, *, in_hurry: bool) -> None:
    """Bring every queued record to an end: acknowledged, or counted as failed."""
    try:
        if deliveries.flush(timeout_s=INTERRUPTED_FLUSH_S if in_hurry else None):
            deliveries.give_up()
    except KeyboardInterrupt:  # a second Ctrl-C: do not wait any longer
        deliveries.give_up()


def _report(deliveries: Deliveries, problem: str | None, interruption: KeyboardInterrupt | None, *, quiet: bool) -> int:
    for line_number, reason in deliveries.first_failures:
        complain(f"line {line_number} was not written: {reason}")
    if deliveries.failed > len(deliveries.first_failures):
        for reason, count in deliveries.reasons.most_common():
            complain(f"{plural(count, 'record')} not written: {reason}")
    if problem is not None:
        complain(f"{problem}; stopped there")
    summary = f"{plural(deliveries.acknowledged, 'record')} acknowledged"
    if deliveries.failed:
        summary += f", {deliveries.failed:,} failed"
    if interruption is not None:
        note(f"interrupted: {summary}")
        return exits.TERMINATED if isinstance(interruption, Terminated) else exits.INTERRUPTED
    if deliveries.failed or problem is not None:
        note(summary)
        return exits.FAILED
    if not quiet:
        note(summary)
    return exits.OK
