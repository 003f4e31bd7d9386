"""`ottla perf`: throughput of producing and consuming, and latency at a fixed rate."""

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import click
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.app import Verbs
from ottla.cli.brokers.client import Connection, connection_options, known_topics, offset_ranges, partitions_of
from ottla.cli.brokers.failures import error_name
from ottla.cli.perf.load import Measured, consume_load, latency_load, produce_load
from ottla.cli.perf.percentiles import summarize_ms
from ottla.cli.terminal import exits
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import complain, json_option, note, plural, print_facts, print_json, progress_wanted
from ottla.cli.terminal.progress import Progress

P = ParamSpec("P")
R = TypeVar("R")

TOPIC: Final = "ottla-perf"
LATENCY_TOPIC: Final = "ottla-perf-latency"
ACKS: Final = ("all", "1", "0")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def _producer_options(command: Callable[P, R]) -> Callable[P, R]:
    command = click.option("--acks", type=click.Choice(ACKS), default="all", help="[default: all]")(command)
    return click.option("--compression", type=click.Choice(CODECS), default="none", help="[default: none]")(command)


@click.group(cls=Verbs)
def command() -> None:
    """Measure throughput and latency.

    The load generator runs on this machine too: give the broker cores of its own for figures worth comparing.
    """


def _ensure_topic(connection: Connection, admin: AdminClient, topic: str, partitions: int) -> None:
    (future,) = admin.create_topics(
        [NewTopic(topic, partitions, -1)], request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s
    ).values()
    try:
        connection.wait(future)
    except KafkaException as failure:
        if error_name(failure.args[0]) != "TOPIC_ALREADY_EXISTS":
            raise
    else:
        note(f"created topic {topic!r} with {plural(partitions, 'partition')}; `ottla topic delete {topic}` removes it")


@command.command()
@click.argument("topic", default=TOPIC)
@click.option("--records", "-n", metavar="N", type=click.IntRange(1), default=1_000_000, help="[default: 1,000,000]")
@click.option("--record-size", type=click.IntRange(1), default=1000, metavar="BYTES", help="[default: 1000]")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="PER_SECOND", help="[default: no limit]")
@click.option("--keys", type=click.IntRange(0), default=0, metavar="N", help="Use N different keys. [default: none]")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1),
    default=6,
    help="Partitions of the topic, if it is created. [default: 6]",
)
@_producer_options
@json_option
@connection_options
def produce(
    connection: Connection,
    topic: str,
    records: int,
    record_size: int,
    rate: float | None,
    keys: int,
    partitions: int,
    acks: str,
    compression: str,
    as_json: bool,
) -> int:
    """Produce records of random letters to TOPIC [default: ottla-perf] and time their acknowledgement."""
    _ensure_topic(connection, connection.admin(), topic, partitions)
    producer = connection.producer(
        acks=acks, compression_type=compression, linger_ms=5, partitioner="murmur2_random", message_timeout_ms=60_000
    )
    with Progress("acknowledged", "records", total=records, wanted=progress_wanted()) as progress:
        measured = produce_load(
            producer,
            topic,
            records=records,
            record_bytes=record_size,
            rate_per_s=rate,
            keys=keys,
            progress=progress,
        )
    return _report("produce", topic, measured, as_json=as_json)


@command.command()
@click.argument("topic", default=TOPIC)
@click.option("--records", "-n", metavar="N", type=click.IntRange(1), help="[default: all that are there]")
@json_option
@connection_options
def consume(connection: Connection, topic: str, records: int | None, as_json: bool) -> int:
    """Read TOPIC [default: ottla-perf] from its beginning."""
    admin = connection.admin()
    partitions = partitions_of(known_topics(connection.metadata(admin), [topic]))
    ranges = offset_ranges(connection, admin, partitions)
    present = sum(end - first for first, end in ranges.values())
    if not present:
        raise CommandFailed(f"topic {topic!r} is empty; fill it with `ottla perf produce {topic}`")
    if records is not None and records > present:
        raise CommandFailed(f"topic {topic!r} holds {plural(present, 'record')} only")
    consumer = connection.consumer(
        group_id="ottla-perf",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="earliest",
        fetch_queue_backoff_ms=10,
        queued_max_messages_kbytes=262_144,
        check_crcs=True,
    )
    try:
        consumer.assign([TopicPartition(each.topic, each.partition, ranges[each][0]) for each in partitions])
        with Progress("read", "records", total=records or present, wanted=progress_wanted()) as progress:
            measured = consume_load(consumer, records=records or present, progress=progress)
    finally:
        consumer.close()
    return _report("consume", topic, measured, as_json=as_json)


@command.command()
@click.argument("topic", default=LATENCY_TOPIC)
@click.option(
    "--rate", type=click.FloatRange(min=0.1, max=1e6), default=500.0, metavar="PER_SECOND", help="[default: 500]"
)
@click.option("--seconds", metavar="N", type=click.FloatRange(min=0.1), default=10.0, help="[default: 10]")
@click.option(
    "--warm-up", type=click.FloatRange(min=0), default=2.0, metavar="SECONDS", help="Not counted. [default: 2]"
)
@click.option("--record-size", type=click.IntRange(16), default=100, metavar="BYTES", help="[default: 100]")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help="Replicas of the topic, if it is created. [default: 1]",
)
@_producer_options
@json_option
@connection_options
def latency(
    connection: Connection,
    topic: str,
    rate: float,
    seconds: float,
    warm_up: float,
    record_size: int,
    partitions: int,
    acks: str,
    compression: str,
    as_json: bool,
) -> int:
    """Time records at a fixed rate, from the moment each is due until it is consumed.

    A record that could not be sent in time because an earlier one was held up counts from when it should have been
    sent, so that stalls show in full. TOPIC is ottla-perf-latency unless given.
    """
    admin = connection.admin()
    _ensure_topic(connection, admin, topic, partitions)
    found = partitions_of(known_topics(connection.metadata(admin), [topic]))
    ranges = offset_ranges(connection, admin, found)
    consumer = connection.consumer(
        group_id="ottla-perf",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        fetch_min_bytes=1,
        fetch_wait_max_ms=500,
    )
    producer = connection.producer(acks=acks, compression_type=compression, linger_ms=0)
    try:
        consumer.assign([TopicPartition(each.topic, each.partition, ranges[each][1]) for each in found])
        total = round(rate * (warm_up + seconds))
        with Progress("timed", "records", total=total, wanted=progress_wanted()) as progress:
            measured = latency_load(
                producer,
                consumer,
                topic,
                rate_per_s=rate,
                seconds=seconds,
                warm_up_s=warm_up,
                record_bytes=record_size,
                progress=progress,
            )
    finally:
        consumer.close()
    return _report("latency", topic, measured, as_json=as_json)


def _report(kind: str, topic: str, measured: Measured, *, as_json: bool) -> int:
    times_ms = summarize_ms(measured.times_s)
    report: dict[str, object] = {
        "kind": kind,
        "topic": topic,
        "records": measured.records,
        "bytes": measured.bytes,
        "seconds": round(measured.seconds, 3),
        "records_per_s": round(measured.records_per_s, 1),
        "mb_per_s": round(measured.mb_per_s, 3),
    }
    if kind == "latency":
        report["sent_late"] = measured.late
    if kind != "consume":
        report["failed"] = measured.failed
        report["latency_ms"] = times_ms
    if as_json:
        print_json(report)
    else:
        latency_facts = [(f"latency_{name}_ms", value) for name, value in times_ms.items()]
        facts = [(name, value) for name, value in report.items() if name != "latency_ms"]
        print_facts([*facts, *latency_facts])
    if measured.failed:
        complain(f"{plural(measured.failed, 'record')} failed, first: {measured.first_failure}")
        return exits.FAILED
    return exits.OK
