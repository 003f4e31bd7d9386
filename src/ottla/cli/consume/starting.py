"""Where reading without a group starts: from the options to an offset per partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click
from confluent_kafka.admin import AdminClient

from ottla.cli.brokers.client import Connection, offsets_at
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import note
from ottla.client.partition import Partition

BEGINNING: Final = "beginning"
END: Final = "end"


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
    """The first offset to read, per partition. Raises CommandFailed for an offset past the end."""
    if start.since_ms is not None:
        return offsets_at(connection, admin, ranges, start.since_ms)
    if start.offset is None:
        return {partition: first if start.place == BEGINNING else end for partition, (first, end) in ranges.items()}
    if start.offset < 0:
        return {partition: max(first, end + start.offset) for partition, (first, end) in ranges.items()}
    offsets = {}
    for partition, (first, end) in ranges.items():
        if start.offset > end:
            raise CommandFailed(f"partition {partition} has offsets {first:,} to {end:,} only, not {start.offset:,}")
        if start.offset < first:
            note(f"partition {partition} begins at offset {first:,}; what lay before has been deleted")
        offsets[partition] = max(start.offset, first)
    return offsets
