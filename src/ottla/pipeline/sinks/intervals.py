"""PURE: from when to when each version of a row was valid (a slowly changing dimension, type 2).

    changes of a key    c 10        u 17     d 20        c 30
    versions            [10, 17)  [17, 20)              [30, ∞)

The changes of a key come in the order of the source. Each begins at its time, or at that of the change before where
clocks went back, so that versions never overlap. Several changes at one time leave versions that lasted no time. A
truncate ends what began before its time; a change of the same time counts as one after it, as in a transaction that
empties a table and fills it anew. So the versions do not depend on how changes are cut into micro-batches, but where
the changes of other partitions come behind a truncate of their future: what is open at the end is the same then, too.

Times are whole numbers of any unit.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.pipeline.change_columns import DELETE

Key = tuple[Any, ...]


class RowChange(NamedTuple):
    """A change of the row with this key: what (`change_columns.OP`), and when."""

    key: Key
    op: str
    at: int


class Last(NamedTuple):
    """What is known of a key: when its newest version began if that is open, or else ended."""

    at: int
    is_open: bool


class Version(NamedTuple):
    """A version that the change of this number began; `end` is None while it is open."""

    number: int
    start: int
    end: int | None


class Intervals(NamedTuple):
    """New versions, and when the open ones of the keys that were known end."""

    new: list[Version]
    ended: dict[Key, int]


def intervals(changes: Iterable[RowChange], known: Mapping[Key, Last], truncates: Sequence[int]) -> Intervals:
    """What becomes of the versions that are known by these changes, and by truncates at these times, in any order."""
    progress = _Progress(known, sorted(truncates))
    for number, change in enumerate(changes):
        progress.apply(number, change)
    return progress.finish()


class _Progress:
    def __init__(self, known: Mapping[Key, Last], truncates: Sequence[int]) -> None:
        self._truncates = truncates
        self._last = dict(known)
        self._open: dict[Key, int] = {}
        """The place in `_new` of the open versions that are there."""
        self._new: list[Version] = []
        self._ended: dict[Key, int] = {}

    def apply(self, number: int, change: RowChange) -> None:
        last = self._last.get(change.key)
        at = change.at if last is None else max(change.at, last.at)
        if last is not None and last.is_open:
            self._end(change.key, min(at, self._truncated(last.at, at)))
        if change.op == DELETE:
            if last is not None and last.is_open:
                self._last[change.key] = Last(at, False)
        elif last is not None and change.at < last.at and not last.is_open and last.at in self._truncates:
            self._new.append(Version(number, at, at))  # it was gone when the table was truncated
        else:
            self._last[change.key] = Last(at, True)
            self._open[change.key] = len(self._new)
            self._new.append(Version(number, at, None))

    def finish(self) -> Intervals:
        if self._truncates:
            newest = self._truncates[-1]
            for key, last in self._last.items():
                if last.is_open and last.at < newest:
                    self._end(key, self._truncated(last.at, newest))
        return Intervals(self._new, self._ended)

    def _end(self, key: Key, at: int) -> None:
        place = self._open.pop(key, None)
        if place is None:
            self._ended[key] = at
        else:
            self._new[place] = self._new[place]._replace(end=at)

    def _truncated(self, after: int, otherwise: int) -> int:
        """The first truncate after that time."""
        place = bisect_right(self._truncates, after)
        return self._truncates[place] if place < len(self._truncates) else otherwise
