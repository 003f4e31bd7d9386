"""Reading records from a consumer in batches, until a limit, the end of the log, or silence."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.cli.brokers.client import client_log
from ottla.cli.brokers.failures import error_name, explain
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.cli.terminal.record_lines import IncomingRecord
from ottla.client.partition import Partition

BATCH_RECORDS: Final = 1000
POLL_S: Final = 0.2
BROKER_TIMEOUT_S: Final = 30.0
"""How long reading to the end waits for brokers that have gone away; reading on and on waits for ever."""


@dataclass(slots=True)
class EndOfLog:
    """Which partitions are still to be read to their end.

    `ends` are the end offsets when reading began: later records are not waited for. In a group `ends` is empty: only
    the
    broker's end-of-partition signal counts, and `assigned` holds the partitions of this member.
    """

    ends: dict[Partition, int] = field(default_factory=dict)
    assigned: set[Partition] | None = None
    reached: set[Partition] = field(default_factory=set)

    def passed(self, partition: Partition, next_offset: int) -> None:
        """Reading has come to `next_offset`."""
        if next_offset >= self.ends.get(partition, 1 << 63):
            self.reached.add(partition)

    def all_reached(self) -> bool:
        """Whether nothing is left to read."""
        return self.assigned is not None and self.reached >= self.assigned


class BrokersGone:
    """Reports once that no broker answers any more."""

    def __init__(self) -> None:
        self.since_s: float | None = None

    def __call__(self, error: KafkaError) -> None:
        """The client's callback for errors that belong to no request."""
        if error_name(error) == "_ALL_BROKERS_DOWN" and self.since_s is None:
            self.since_s = time.monotonic()
            note("ottla: the broker does not answer; waiting for it to come back")


def read_batches(
    consumer: Consumer,
    *,
    max_records: int | None,
    timeout_s: float | None,
    until: EndOfLog | None,
    gone: BrokersGone,
) -> Iterator[list[IncomingRecord]]:
    """Yield records as they arrive, in batches; an empty one at least every `POLL_S` while there are none.

    Ends after `max_records`, after `timeout_s` without a record, or at the end of the log. Raises CommandFailed when
    the broker refuses a partition or serves a corrupt batch.
    """
    remaining = max_records
    heard_s = time.monotonic()
    while (until is None or not until.all_reached()) and remaining != 0:
        wanted = BATCH_RECORDS if remaining is None else min(BATCH_RECORDS, remaining)
        first = consumer.poll(POLL_S)
        messages = [] if first is None else [first, *(consumer.consume(wanted - 1, 0) if wanted > 1 else ())]
        records = [record for record in (_record(message, until) for message in messages) if record is not None]
        now_s = time.monotonic()
        if messages:
            gone.since_s = None
        if records:
            heard_s = now_s
            if remaining is not None:
                remaining -= len(records)
        yield records
        if timeout_s is not None and now_s - heard_s >= timeout_s:
            return
        if until is not None and gone.since_s is not None and now_s - gone.since_s > BROKER_TIMEOUT_S:
            raise CommandFailed(f"the broker has not answered for {BROKER_TIMEOUT_S:.0f} s; gave up")


def _record(message: Message, until: EndOfLog | None) -> IncomingRecord | None:
    """The message as a record; None for the news that a partition is at its end, or for what lies past the end."""
    topic, number, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    error = message.error()
    if error is not None:
        if error_name(error) == "_PARTITION_EOF":
            if until is not None:
                until.reached.add(Partition(topic, number))
            return None
        where = f"partition {topic}-{number}" if message.topic() and message.partition() is not None else "the topic"
        raise CommandFailed(f"{where} cannot be read: {explain(error, client_log.last_reason())}")
    if until is not None:
        partition = Partition(topic, number)
        if offset >= until.ends.get(partition, 1 << 63):
            until.reached.add(partition)
            return None
        until.passed(partition, offset + 1)
    timestamp_type, timestamp_ms = message.timestamp()
    return IncomingRecord(
        topic,
        number,
        offset,
        timestamp_ms if timestamp_type else None,
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers()
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def store_positions(consumer: Consumer, records: list[IncomingRecord]) -> None:
    """Mark records as handled, so that the group's next commit covers them."""
    positions = {(record.topic, record.partition): record.offset + 1 for record in records}
    try:
        consumer.store_offsets(
            offsets=[TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        )
    except KafkaException as refused:
        # A partition that has just gone to another member is committed by that member, after reading it again.
        if error_name(refused.args[0]) != "_STATE":
            raise
