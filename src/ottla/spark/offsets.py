"""Offsets of several partitions, and how much of what is new goes into one batch. PURE.

earliest            start               end                latest
   |   already read   |    this batch    |   later batches    |
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

EARLIEST: Final = -2  # the special offsets of ListOffsets
LATEST: Final = -1

Offsets = dict[str, dict[int, int]]
"""topic -> partition -> offset of the next record to read."""

FlatOffsets = dict["Partition", int]

TopicIds = dict[str, UUID]
"""topic -> its id (KIP-516), as far as the brokers know ids."""


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records `start` to `end` - 1 of one partition; fewer exist where compaction or transactions left gaps.

    `topic_id` (KIP-516): of the topic that is meant, None where brokers have none.
    """

    partition: Partition
    start: int
    end: int
    topic_id: UUID | None = None


def admit(start: FlatOffsets, latest: FlatOffsets, max_rows: int | None) -> FlatOffsets:
    """End of the next batch: at most `max_rows` offsets past `start`, shared out by how far each partition lags.

    Shares follow the lag so that partitions written together stay together in event time, which keeps watermarks
    honest. For the same reason each partition with something to read gets one offset before the rest is shared out, as
    long as `max_rows` reaches: a quiet one would wait behind a backlog until its records are late. The sum never
    exceeds `max_rows`: what rounding down leaves goes to the longest lags first.
    """
    lags = {partition: max(0, end - start.get(partition, 0)) for partition, end in latest.items()}
    total = sum(lags.values())
    if max_rows is None or total <= max_rows:
        return {partition: start.get(partition, 0) + lag for partition, lag in lags.items()}
    behind = sum(lag > 0 for lag in lags.values())
    least = 1 if max_rows >= behind else 0
    rest, rest_of_lags = max_rows - least * behind, total - least * behind
    shares = {partition: least + rest * (lag - least) // rest_of_lags if lag else 0 for partition, lag in lags.items()}
    left = max_rows - sum(shares.values())
    for partition in sorted(lags, key=lambda each: (-lags[each], each)):
        if left == 0:
            break
        if shares[partition] < lags[partition]:
            shares[partition] += 1
            left -= 1
    return {partition: start.get(partition, 0) + share for partition, share in shares.items()}


def split(ranges: list[OffsetRange], min_partitions: int, max_records: int | None = None) -> list[OffsetRange]:
    """Cut the ranges so that about `min_partitions` come out, each of a like number of offsets, and none of more than
    `max_records`."""
    total = sum(each.end - each.start for each in ranges)
    pieces: list[OffsetRange] = []
    for whole in ranges:
        size = whole.end - whole.start
        count = max(1, round(size * min_partitions / total)) if total else 1
        if max_records is not None:
            count = max(count, -(-size // max_records))
        edges = [whole.start + size * step // count for step in range(count + 1)]
        pieces.extend(
            OffsetRange(whole.partition, low, high, whole.topic_id) for low, high in pairwise(edges) if low < high
        )
    return pieces
