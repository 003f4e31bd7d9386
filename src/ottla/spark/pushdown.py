"""Filters of a batch query that spare the read what the query does not want. PURE.

Spark hands over comparisons of one column with constants, joined by "and". Those on `topic`, `partition` and `offset`
are done here once and for all. One on `timestamp` leaves out what lies before the first record that is young enough,
and is left to Spark as well: records need not lie in the order of their times.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla.spark.offsets import FlatOffsets, Partition

_NEVER_NULL: Final = ("topic", "partition", "offset")
_FAR: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from `low` to `end` - 1, and of them only `among`, unless that is None."""

    low: int = 0
    end: int = _FAR
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.end and (self.among is None or number in self.among)

    def narrowed(self, given: Filter) -> "Span | None":
        """With the filter; None if it is not understood."""
        match given:
            case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
                return self._from_to(value, value + 1)
            case GreaterThan(_, int(value)):
                return self._from_to(value + 1, _FAR)
            case GreaterThanOrEqual(_, int(value)):
                return self._from_to(value, _FAR)
            case LessThan(_, int(value)):
                return self._from_to(0, value)
            case LessThanOrEqual(_, int(value)):
                return self._from_to(0, value + 1)
            case In(_, values) if all(type(value) is int for value in values):
                wanted = frozenset(values) if self.among is None else self.among & frozenset(values)
                within = self._from_to(min(wanted, default=0), max(wanted, default=-1) + 1)
                return replace(within, among=wanted)
        return None

    def _from_to(self, low: int, end: int) -> "Span":
        return replace(self, low=max(self.low, low), end=min(self.end, end))


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The part of the records to read. `topics` None: all; `since_ms` None: from the first record on."""

    topics: frozenset[str] | None = None
    partitions: Span = Span()
    offsets: Span = Span()
    since_ms: int | None = None

    def narrowed(self, given: Filter) -> "tuple[Narrowing, bool]":
        """With one filter more, and whether that expresses all of it."""
        column = getattr(given, "attribute", ())
        match column, given:
            case (name,), IsNotNull():
                return self, name in _NEVER_NULL
            case ("topic",), EqualTo(_, str(value)) | EqualNullSafe(_, str(value)):
                return self._only(frozenset((value,))), True
            case ("topic",), In(_, values) if all(isinstance(value, str) for value in values):
                return self._only(frozenset(map(str, values))), True
            case ("partition",), _:
                span = self.partitions.narrowed(given)
                return (self, False) if span is None else (replace(self, partitions=span), True)
            case ("offset",), _:
                span = self.offsets.narrowed(given)
                return (self, False) if span is None else (replace(self, offsets=span), span.among is None)
            case ("timestamp",), EqualTo(_, datetime() as time) | GreaterThanOrEqual(_, datetime() as time):
                return self._since(_micros(time)), False
            case ("timestamp",), GreaterThan(_, datetime() as time):
                return self._since(_micros(time) + 1), False
        return self, False

    def _only(self, topics: frozenset[str]) -> "Narrowing":
        return replace(self, topics=topics if self.topics is None else self.topics & topics)

    def _since(self, micros: int) -> "Narrowing":
        """From the first whole millisecond that is not before the time."""
        millis = -(-micros // 1_000)
        return replace(self, since_ms=millis if self.since_ms is None else max(millis, self.since_ms))

    def admits(self, partition: Partition) -> bool:
        """Whether the filters leave anything of a partition."""
        return partition.number in self.partitions and (self.topics is None or partition.topic in self.topics)

    def clip(self, start: FlatOffsets, end: FlatOffsets) -> tuple[FlatOffsets, FlatOffsets]:
        """The ranges that are left of these."""
        start = {each: max(low, self.offsets.low) for each, low in start.items() if self.admits(each)}
        return start, {each: max(start[each], min(end[each], self.offsets.end)) for each in start}


def narrow(filters: Iterable[Filter], unsaid: list[Filter]) -> Narrowing:
    """What the filters leave to read. Those that Spark still has to apply go into `unsaid`."""
    narrowing = Narrowing()
    for each in filters:
        narrowing, is_said = narrowing.narrowed(each)
        if not is_said:
            unsaid.append(each)
    return narrowing


def _micros(time: datetime) -> int:
    """Since 1970; Spark's constants are of UTC where they do not say."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
