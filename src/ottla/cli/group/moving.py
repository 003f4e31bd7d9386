"""Which partitions to move, and how moves are shown. Pure."""

from collections.abc import Iterable

from ottla.cli.terminal.output import Column, Row
from ottla.client.moving import Move


def parse_selection(topics: Iterable[str]) -> dict[str, set[int]]:
    """`TOPIC` and `TOPIC:0,2` arguments as the wanted partitions per topic; an empty set means all.

    Raises ValueError.
    """
    selected: dict[str, set[int]] = {}
    for text in topics:
        topic, colon, numbers = text.partition(":")
        if not topic or (colon and not all(number.strip().isdigit() for number in numbers.split(","))):
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,2")
        selected.setdefault(topic, set()).update(int(number) for number in numbers.split(",") if colon)
    return selected


def move_rows(moves: Iterable[Move]) -> list[Row]:
    """As they are shown, in the columns of `move_columns`."""
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "from": each.was,
            "to": each.to,
            "skipped": each.skipped,
            "replayed": each.replayed,
        }
        for each in moves
    ]


def move_columns(replayed: str) -> tuple[Column, ...]:
    """`replayed`: what happens to records that the group has passed already."""
    return (
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", figures=True),
        Column("from", "FROM", figures=True),
        Column("to", "TO", figures=True),
        Column("skipped", "SKIPPED", figures=True),
        Column("replayed", replayed, figures=True),
    )
