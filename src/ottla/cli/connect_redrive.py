"""`ottla connect redrive`: dead letters go back to the topics they came from, exactly once."""

from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.cli.client import Connection, connection_options, known_topics, offset_ranges, partitions_of
from ottla.cli.connect_client import Rest, rest_option
from ottla.cli.exits import CommandFailed
from ottla.cli.output import confirm, note, plural, yes_option

_PREFIX: Final = "__connect.errors."
_BATCH: Final = 1000
_PATIENCE_S: Final = 30.0


@click.command()
@click.argument("name")
@click.option("--to", "target", metavar="TOPIC", help="Send all of them there instead.")
@click.option("--max", "most", type=click.IntRange(min=1), help="At most so many.")
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
            f"dead letters of {name} do not say where they came from, since "
            "errors.deadletterqueue.context.headers.enable is not set; name a topic with --to"
        )
    admin = connection.admin()
    partitions = partitions_of(known_topics(connection.metadata(admin), [topic]))
    ends = {place: end for place, (_, end) in offset_ranges(connection, admin, partitions).items()}
    group = f"connect-{name}-redrive"
    consumer = connection.consumer(
        group_id=group, enable_auto_commit="false", auto_offset_reset="earliest", isolation_level="read_committed"
    )
    try:
        wanted = [TopicPartition(each.topic, each.partition) for each in partitions]
        places = consumer.committed(wanted, timeout=_PATIENCE_S)
        starts = {(each.topic, each.partition): max(0, each.offset) for each in places}
        left = sum(max(0, end - starts[place.topic, place.partition]) for place, end in ends.items())
        if not left:
            note(f"no dead letter of {name} is left in {topic}")
            return
        count = left if most is None else min(left, most)
        confirm(f"Send {plural(count, 'record')} from {topic} to {target or 'where they came from'}?", yes=yes)
        consumer.assign([TopicPartition(t, number, offset) for (t, number), offset in starts.items()])
        limits = {(place.topic, place.partition): end for place, end in ends.items()}
        sent = _send(connection, consumer, group, target, most, limits, starts)
    finally:
        consumer.close()
    note(f"sent {plural(sent, 'record')}")


def _send(
    connection: Connection,
    consumer: Consumer,
    group: str,
    target: str | None,
    most: int | None,
    limits: dict[tuple[str, int], int],
    places: dict[tuple[str, int], int],
) -> int:
    producer = connection.producer(transactional_id=group)
    producer.init_transactions(_PATIENCE_S)
    sent = 0
    while any(places[place] < limits[place] for place in limits) and (most is None or sent < most):
        wanted = _BATCH if most is None else min(_BATCH, most - sent)
        messages = consumer.consume(wanted, 2.0)
        if not messages:
            break  # what is left are control records
        producer.begin_transaction()
        for message in messages:
            error = message.error()
            if error is not None:
                _abort(producer, error)
            place = (message.topic() or "", message.partition() or 0)
            offset = message.offset() or 0
            if offset < limits[place]:
                _forward(producer, message, target)
                sent += 1
                places[place] = offset + 1
        kept = [TopicPartition(topic, number, offset) for (topic, number), offset in places.items()]
        producer.send_offsets_to_transaction(kept, consumer.consumer_group_metadata(), _PATIENCE_S)
        producer.commit_transaction(_PATIENCE_S)
    return sent


def _abort(producer: Producer, error: KafkaError) -> None:
    producer.abort_transaction(_PATIENCE_S)
    raise CommandFailed(f"the dead letters cannot be read: {error.str()}")


def _forward(producer: Producer, message: Message, target: str | None) -> None:
    headers: list[Any] = list(message.headers() or ())
    origin = next((value for key, value in headers if key == f"{_PREFIX}topic"), None)
    topic = target or (origin.decode() if isinstance(origin, bytes) else origin)
    if not topic:
        producer.abort_transaction(_PATIENCE_S)
        raise CommandFailed(
            f"the record at offset {message.offset()} does not say where it came from; name a topic with --to"
        )
    kept = [(key, value) for key, value in headers if not key.startswith(_PREFIX)]
    producer.produce(topic, message.value(), message.key(), headers=kept, timestamp=message.timestamp()[1])
