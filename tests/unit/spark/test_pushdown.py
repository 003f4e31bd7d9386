from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.spark.offsets import Partition
from ottla.spark.pushdown import Narrowing, narrow

START = {Partition(topic, number): 10 for topic in ("a", "b") for number in range(4)}
END = dict.fromkeys(START, 100)
WHOLE = [(str(partition), 10, 100) for partition in START]


def left(*filters: Filter) -> tuple[list[tuple[str, int, int]], list[Filter]]:
    """Ranges with something in them, and the filters that Spark is to apply."""
    unsaid: list[Filter] = []
    start, end = narrow(filters, unsaid).clip(START, END)
    return [(str(each), start[each], end[each]) for each in start if start[each] < end[each]], unsaid


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (EqualTo(("partition",), 2), {2}),
        (EqualNullSafe(("partition",), 2), {2}),
        (GreaterThan(("partition",), 2), {3}),
        (GreaterThanOrEqual(("partition",), 2), {2, 3}),
        (LessThan(("partition",), 1), {0}),
        (LessThanOrEqual(("partition",), 1), {0, 1}),
        (In(("partition",), (0, 3, 9)), {0, 3}),
        (EqualTo(("partition",), 9), set()),
        (In(("partition",), ()), set()),
    ],
)
def test_partitions_are_left_out(given: Filter, numbers: set[int]) -> None:
    ranges, unsaid = left(given)
    assert unsaid == []
    assert ranges == [each for each in WHOLE if int(each[0][-1]) in numbers]


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        (EqualTo(("offset",), 50), 50, 51),
        (GreaterThan(("offset",), 50), 51, 100),
        (GreaterThanOrEqual(("offset",), 5), 10, 100),
        (LessThan(("offset",), 50), 10, 50),
        (LessThanOrEqual(("offset",), 50), 10, 51),
    ],
)
def test_ranges_are_narrowed_by_offset(given: Filter, start: int, end: int) -> None:
    ranges, unsaid = left(given, EqualTo(("partition",), 0), EqualTo(("topic",), "a"))
    assert unsaid == []
    assert ranges == [("a-0", start, end)]


def test_filters_are_joined_by_and() -> None:
    ranges, _ = left(
        In(("partition",), (0, 1)),
        In(("partition",), (1, 2)),
        In(("topic",), ("a", "c")),
        GreaterThan(("offset",), 20),
        LessThan(("offset",), 30),
    )
    assert ranges == [("a-1", 21, 30)]
    assert left(GreaterThan(("offset",), 30), LessThan(("offset",), 30))[0] == []


def test_some_offsets_are_read_from_first_to_last_and_picked_by_spark() -> None:
    some = In(("offset",), (20, 40))
    ranges, unsaid = left(some, EqualTo(("partition",), 0), EqualTo(("topic",), "b"))
    assert (ranges, unsaid) == ([("b-0", 20, 41)], [some])


@pytest.mark.parametrize(
    "given",
    [
        IsNull(("key",)),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
        EqualTo(("partition",), None),
        EqualTo(("key",), b"k"),
        StringStartsWith(("topic",), "a"),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("headers", "key"), "h"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(given: Filter) -> None:
    assert left(given) == (WHOLE, [given])


def test_what_is_always_so_is_not_asked() -> None:
    assert left(IsNotNull(("partition",)), IsNotNull(("offset",)), IsNotNull(("topic",))) == (WHOLE, [])


def test_times_say_where_to_begin_and_stay_with_spark() -> None:
    def since(*filters: Filter) -> int | None:
        unsaid: list[Filter] = []
        found: Narrowing = narrow(filters, unsaid)
        assert unsaid == list(filters)
        return found.since_ms

    at = datetime(2026, 1, 1, 0, 0, 0, 1_500, UTC)
    millis = 1_767_225_600_002
    assert since(GreaterThanOrEqual(("timestamp",), at)) == millis
    assert since(GreaterThan(("timestamp",), at.replace(tzinfo=None)), EqualTo(("timestamp",), at)) == millis
    assert since(GreaterThan(("timestamp",), at), GreaterThan(("timestamp",), at.replace(year=2025))) == millis
    assert since(LessThan(("timestamp",), at)) is None
    whole = at.replace(microsecond=2_000)
    assert since(GreaterThanOrEqual(("timestamp",), whole)) == millis
    assert since(GreaterThan(("timestamp",), whole)) == millis + 1
