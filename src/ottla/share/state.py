"""The persistent state of a share partition: finished records, and the delivery count of the others. PURE.

    start offset          batches
         |                   |
    .....[  4, 7 available 1 ][ 8, 8 acknowledged 2 ]    [ 12, 20 archived 5 ]  ->  never delivered
         4                   8                       9   12                   21

Everything before the start offset is finished; offsets in no batch were never delivered. Source: KIP-932.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.ids import GroupId, PartitionId, TopicId

UNKNOWN_START_OFFSET: Final = -1
"""When read: no start is set yet. When written: keep the present start."""

UNKNOWN_COUNT: Final = -1
"""The number of finished records is unknown: delivery has not begun, or an older version wrote the state."""

ANY_EPOCH: Final = -1
"""A request that leaves an epoch out is not checked against it."""


class DeliveryState(IntEnum):
    """How it stands with a record, as numbered in the log and on the wire; a record that is held right now (1 in
    Kafka) is never written."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records of one state; both offsets are inclusive. `delivery_state` is a `DeliveryState`, or a number that only a
    later version knows."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionState(NamedTuple):
    """What its leader starts from. `start_offset` is -1 if the group's `share.auto.offset.reset` is to say it.

    `batches` are sorted, do not overlap and lie at or after the start offset.
    """

    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()


class SharePartitionKey(NamedTuple):
    """One partition of a topic, as one share group reads it."""

    group_id: GroupId
    topic_id: TopicId
    partition: PartitionId


def combine(current: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches once `new` ones have been written, without what lies before `start_offset` (-1: keeps all).

    Where batches overlap, the higher delivery count wins, then the higher state: a write that comes late takes nothing
    back. Neighbours of one state and count become one batch. `current` has to be what this function returned.
    """
    if new:
        first = min(batch.first_offset for batch in new)
        last = max(batch.last_offset for batch in new)
        # Only those that a new one overlaps or touches can change.
        lo = bisect_left(current, first - 1, key=_last_offset)
        hi = bisect_right(current, last + 1, key=_first_offset)
        current = (*current[:lo], *_united((*current[lo:hi], *new)), *current[hi:])
    keep = bisect_left(current, start_offset, key=_last_offset)
    if keep == len(current):
        return ()
    if current[keep].first_offset < start_offset:
        return (current[keep]._replace(first_offset=start_offset), *current[keep + 1 :])
    return tuple(current[keep:])


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _united(batches: Sequence[StateBatch]) -> list[StateBatch]:
    united: list[StateBatch] = []
    for piece in _strongest(batches):
        before = united[-1] if united else None
        if (
            before is not None
            and before.last_offset + 1 == piece.first_offset
            and before.delivery_state == piece.delivery_state
            and before.delivery_count == piece.delivery_count
        ):
            united[-1] = StateBatch(
                before.first_offset, piece.last_offset, before.delivery_state, before.delivery_count
            )
        else:
            united.append(piece)
    return united


def _strongest(batches: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """Pieces in order of offset, each with what wins there; a sweep over the offsets where something begins or ends."""
    in_order = sorted(batches, key=_first_offset)
    if all(before.last_offset < after.first_offset for before, after in pairwise(in_order)):
        yield from in_order  # none overlap, as in nearly every write
        return
    edges = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    waiting = in_order[::-1]
    open_batches: list[tuple[int, int, int]] = []
    for edge, following in pairwise(edges):
        while waiting and waiting[-1].first_offset == edge:
            batch = waiting.pop()
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
        while open_batches and open_batches[0][2] < edge:
            heappop(open_batches)
        if open_batches:
            count, state, _ = open_batches[0]
            yield StateBatch(edge, following - 1, -state, -count)
