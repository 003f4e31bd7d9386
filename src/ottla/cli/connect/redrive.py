"""`ottla connect redrive`: dead letters go back to the topics they came from, exactly once."""

import contextlib
import time
from collections.abc import Iterable
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.cli.brokers.client import Connection, connection_options, known_topics, offset_ranges, partitions_of
from ottla.cli.connect.client import Rest, rest_option
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import confirm, note, plural, yes_option
from ottla.producers import abandon

_PREFIX: Final = "__connect.errors."
_BATCH: Final = 1000
_TIMEOUT_S: Final = 30.0


@click.command()
@click.argument("name")
@click.option("--to", "target", metavar="TOPIC", help="Send all of them there instead.")
@click.option("--max", "most", metavar="N", type=click.IntRange(min=1), help="At most so many.")
@yes_option
@rest_option
@connection_options
def redrive(connection: Connection, rest: Rest, name: str, target: str | None, most: int | None, yes: bool) -> None:
    """Send the dead letters of the sink NAME back to the topics they came from, without their reason headers.

    Every reader of those topics sees them again. Each is sent once: the group connect-NAME-redrive keeps the place.
    """
    config = rest.connector(name, "/config")
    topic = config.get("errors.deadletterqueue.topic.name")
    if not topic:
        raise CommandFailed(f"{name} has no dead-letter topic: errors.deadletterqueue.topic.name is not set")
    if target is None and config.get("errors.deadletterqueue.context.headers.enable", "false").lower() != "true":
        raise CommandFailed(
            f"dead letters of {name} do not carry their origin, since "
            "errors.deadletterqueue.context.headers.enable is not set; name a topic with --to"
        )
    admin = connection.admin()
    partitions = partitions_of(known_topics(connection.metadata(admin), [topic]))
    ends = {place: end for place, (_, end) in offset_ranges(connection, admin, partitions).items()}
    group = f"connect-{name}-redrive"
    consumer = connection.consumer(
        group_id=group,
        enable_auto_commit="false",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_partition_eof="true",
    )
    limits = {(place.topic, place.partition): end for place, end in ends.items()}
    try:
        starts = _committed(consumer, limits)
        left = sum(max(0, end - starts[place]) for place, end in limits.items())
        if not left:
            note(f"no dead letter of {name} is left in {topic}")
            return
        count = left if most is None else min(left, most)
        confirm(f"Send {plural(count, 'record')} from {topic} to {target or 'where they came from'}?", yes=yes)
        producer = connection.producer(transactional_id=group)
        producer.init_transactions(_TIMEOUT_S)  # fences every earlier sender
        starts = _committed(consumer, limits)
        consumer.assign([TopicPartition(t, number, offset) for (t, number), offset in starts.items()])
        try:
            sent = _send(producer, consumer, target, most, limits, starts)
        except BaseException:
            with contextlib.suppress(KafkaException):  # none may be open; readers would wait for its end
                producer.abort_transaction(_TIMEOUT_S)
            raise
        finally:
            abandon(producer)
    finally:
        consumer.close()
    note(f"sent {plural(sent, 'record')}")


def _committed(consumer: Consumer, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Where the group has come to."""
    found = consumer.committed([TopicPartition(*place) for place in places], timeout=_TIMEOUT_S)
    return {(each.topic, each.partition): max(0, each.offset) for each in found}


def _send(
    producer: Producer,
    consumer: Consumer,
    target: str | None,
    most: int | None,
    limits: dict[tuple[str, int], int],
    places: dict[tuple[str, int], int],
) -> int:
    sent = 0
    heard = time.monotonic()
    while any(places[place] < limits[place] for place in limits) and (most is None or sent < most):
        wanted = _BATCH if most is None else min(_BATCH, most - sent)
        messages = consumer.consume(wanted, 0.5)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > _TIMEOUT_S:
            raise CommandFailed(
                f"sent {plural(sent, 'record')}; the others could not be read within {_TIMEOUT_S:.0f} s"
            )
        producer.begin_transaction()
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # the library's name
                places[place] = max(places[place], limits[place])  # what is left are control records
                continue
            if error is not None:
                raise CommandFailed(f"the dead letters cannot be read: {error.str()}")
            offset = message.offset() or 0
            if offset < limits[place]:
                _forward(producer, message, target)
                sent += 1
                places[place] = offset + 1
        kept = [TopicPartition(topic, number, offset) for (topic, number), offset in places.items()]
        producer.send_offsets_to_transaction(kept, consumer.consumer_group_metadata(), _TIMEOUT_S)
        producer.commit_transaction(_TIMEOUT_S)
    return sent


def _forward(producer: Producer, message: Message, target: str | None) -> None:
    headers: list[Any] = list(message.headers() or ())
    origin = next((value for key, value in headers if key == f"{_PREFIX}topic"), None)
    topic = target or (origin.decode() if isinstance(origin, bytes) else origin)
    if not topic:
        raise CommandFailed(
            f"the record at offset {message.offset()} does not carry its origin; name a topic with --to"
        )
    kept = [(key, value) for key, value in headers if not key.startswith(_PREFIX)]
    producer.produce(topic, message.value(), message.key(), headers=kept, timestamp=message.timestamp()[1])
