"""Moving a group's position: where to, and how many records are skipped or read again by it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.partition import Partition


@dataclass(frozen=True, slots=True)
class Target:
    """Where to move; exactly one is set."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's move; `was` is None where the group had committed nothing."""

    partition: Partition
    was: int | None
    to: int
    first: int
    end: int

    @property
    def skipped(self) -> int:
        """Records that will not be read."""
        return 0 if self.was is None else max(0, self.to - max(self.was, self.first))

    @property
    def replayed(self) -> int:
        """Records that will be read a second time."""
        return 0 if self.was is None else max(0, min(self.was, self.end) - self.to)


def records_ahead(position: int | None, bounds: tuple[int, int] | None) -> int | None:
    """How many records a group has yet to read in a partition that holds the offsets `bounds`; None: no such partition.

    Without a position everything is still to be read; what was deleted meanwhile can no longer be.
    """
    if bounds is None:
        return None
    first, end = bounds
    return max(0, end - max(first, first if position is None else position))


def move(
    partition: Partition, was: int | None, first: int, end: int, target: Target, at_time: int | None = None
) -> Move:
    """The move of one partition whose log holds the offsets from `first` up to but not including `end`.

    A target outside the log is brought to its nearest end. A shift without a commit counts from the beginning.
    `at_time` is the offset belonging to `target.time_ms`.
    """
    if target.earliest:
        wanted = first
    elif target.latest:
        wanted = end
    elif target.offset is not None:
        wanted = target.offset
    elif target.shift is not None:
        wanted = (first if was is None else was) + target.shift
    else:
        wanted = end if at_time is None else at_time
    return Move(partition, was, min(max(wanted, first), end), first, end)


def describe_moves(moves: Iterable[Move], *, done: bool) -> str:
    """What the moves together come to, as in "12 records would be skipped, 3 read again"."""
    listed = list(moves)
    skipped = sum(each.skipped for each in listed)
    replayed = sum(each.replayed for each in listed)
    ahead = sum(each.end - each.to for each in listed)
    verb = "will be" if done else "would be"
    parts = []
    if skipped:
        parts.append(f"{_records(skipped)} {verb} skipped")
    if replayed:
        parts.append(f"{_records(replayed)} {verb} read again")
    if not parts:
        parts.append("none skipped and none read again")
    return f"{', '.join(parts)}; {_records(ahead)} then lie ahead"


def _records(count: int) -> str:
    return f"{count:,} record" + ("" if count == 1 else "s")
