"""Where reading without a group starts: from the options to an offset per partition."""

import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import click
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.cli.brokers.client import Connection, offsets_at
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.client.partition import Partition

BEGINNING: Final = "beginning"
END: Final = "end"
_MOST_LOOKED_FOR: Final = 1_000
"""For more of the last records, offsets are counted instead: to look for them takes as long as to read them."""
_LOOKED_BACK: Final = 4
"""Where too few records are found, so many times as many offsets are looked at next."""
_SILENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """One of: the beginning, the end, an offset (negative: that many before the end), a time (ms since the epoch)."""

    place: str = END
    offset: int | None = None
    since_ms: int | None = None


def parse_offset(text: str) -> Start:
    """`beginning`, `end`, `17` or `-17`. Raises click.UsageError."""
    if text.lower() in (BEGINNING, "earliest"):
        return Start(BEGINNING)
    if text.lower() in (END, "latest"):
        return Start(END)
    try:
        return Start(offset=int(text))
    except ValueError:
        raise click.UsageError(
            f"--offset is {BEGINNING}, {END}, a number, or -N for the last N records, not {text!r}"
        ) from None


def start_offsets(
    connection: Connection, admin: AdminClient, start: Start, ranges: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, int]:
    """The first offset to read, per partition; for the last N see `last_records`. Raises CommandFailed for an offset
    past the end."""
    if start.since_ms is not None:
        return offsets_at(connection, admin, ranges, start.since_ms)
    if start.offset is None:
        return {partition: first if start.place == BEGINNING else end for partition, (first, end) in ranges.items()}
    offsets = {}
    for partition, (first, end) in ranges.items():
        if start.offset > end:
            raise CommandFailed(f"partition {partition} has offsets {first:,} to {end:,} only, not {start.offset:,}")
        if start.offset < first:
            note(f"partition {partition} begins at offset {first:,}; what lay before has been deleted")
        offsets[partition] = max(start.offset, first)
    return offsets


def last_records(consumer: Consumer, ranges: Mapping[Partition, tuple[int, int]], count: int) -> dict[Partition, int]:
    """The offset from which each partition has its last `count` records.

    Offsets are no measure: transactions put a marker behind their records, and aborted and compacted records leave
    theirs unused. `consumer` reports the ends of partitions, and is not used for anything else meanwhile.
    """
    by_offset = {partition: max(first, end - count) for partition, (first, end) in ranges.items()}
    if count > _MOST_LOOKED_FOR:
        return by_offset
    width = 2 * count  # as for transactions of one record each
    starts = {partition: max(first, end - width) for partition, (first, end) in ranges.items()}
    wanted = {partition for partition, start in starts.items() if start < ranges[partition][1]}
    while wanted:
        found = _offsets(consumer, {partition: starts[partition] for partition in wanted}, ranges, count)
        width *= _LOOKED_BACK
        for partition in tuple(wanted):
            first, end = ranges[partition]
            offsets = found.get(partition)
            if offsets is None:
                starts[partition] = by_offset[partition]
                wanted.discard(partition)  # nobody answers: reading will say so
            elif len(offsets) == count or starts[partition] == first:
                starts[partition] = min(offsets, default=end)
                wanted.discard(partition)
            else:
                starts[partition] = max(first, end - width)
    return starts


def _offsets(
    consumer: Consumer, starts: Mapping[Partition, int], ranges: Mapping[Partition, tuple[int, int]], count: int
) -> dict[Partition, Collection[int]]:
    """The offsets of the last records, `count` at most, of each partition that was read to its end."""
    seen: dict[Partition, deque[int]] = {partition: deque(maxlen=count) for partition in starts}
    done: dict[Partition, Collection[int]] = {}
    waiting = set(starts)
    consumer.assign([TopicPartition(each.topic, each.partition, start) for each, start in starts.items()])
    deadline = time.monotonic() + _SILENCE_S
    while waiting and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.1):
            partition = Partition(message.topic() or "", message.partition() or 0)
            if partition not in waiting:
                continue  # it was read to its end, and gets more
            error, end = message.error(), ranges[partition][1]
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                waiting.discard(partition)  # reading will say so
                continue
            deadline = time.monotonic() + _SILENCE_S
            offset = message.offset()
            if error is None and offset is not None and offset < end:
                seen[partition].append(offset)
            if error is not None or (offset is not None and offset >= end - 1):
                done[partition] = seen[partition]
                waiting.discard(partition)
    consumer.unassign()
    return done
