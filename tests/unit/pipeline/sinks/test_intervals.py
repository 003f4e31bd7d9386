"""From when to when versions are valid: by hand, and against a table that is changed step by step."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.sinks.intervals import Intervals, Key, Last, RowChange, Version, intervals

A, B = ("a",), ("b",)


def changes(*given: tuple[Key, str, int]) -> list[RowChange]:
    return [RowChange(*each) for each in given]


def test_each_change_begins_a_version_and_ends_the_one_before() -> None:
    found = intervals(changes((A, "c", 10), (B, "r", 12), (A, "u", 17), (A, "d", 20), (A, "c", 30)), {}, [])
    assert found == Intervals([Version(0, 10, 17), Version(1, 12, None), Version(2, 17, 20), Version(4, 30, None)], {})


def test_what_is_known_is_ended_once() -> None:
    known = {A: Last(5, True), B: Last(9, False)}
    found = intervals(changes((A, "u", 7), (A, "u", 8), (B, "d", 11), (B, "c", 12)), known, [])
    assert found == Intervals([Version(0, 7, 8), Version(1, 8, None), Version(3, 12, None)], {A: 7})


def test_changes_at_one_time_leave_versions_that_lasted_none() -> None:
    found = intervals(changes((A, "u", 5), (A, "u", 5), (A, "d", 5)), {A: Last(5, True)}, [])
    assert found == Intervals([Version(0, 5, 5), Version(1, 5, 5)], {A: 5})


def test_a_clock_that_goes_back_does_not_make_versions_overlap() -> None:
    found = intervals(changes((A, "u", 3), (B, "c", 3)), {A: Last(5, True), B: Last(8, False)}, [])
    assert found == Intervals([Version(0, 5, None), Version(1, 8, None)], {A: 5})


def test_a_truncate_ends_what_began_before_it() -> None:
    known = {A: Last(5, True), B: Last(10, True)}
    assert intervals([], known, [10]) == Intervals([], {A: 10})
    reloaded = intervals(changes((A, "c", 10), (B, "u", 30)), known, [20, 10])
    assert reloaded == Intervals([Version(0, 10, 20), Version(1, 30, None)], {A: 10, B: 20})
    # a change of another partition that comes behind the truncate
    assert intervals(changes((A, "c", 7)), {}, [10]) == Intervals([Version(0, 7, 10)], {})


_CHANGES = st.lists(st.tuples(st.sampled_from([A, B]), st.sampled_from("cud"), st.integers(0, 9)), max_size=12)


@given(_CHANGES, st.lists(st.integers(0, 9), max_size=1), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_where_micro_batches_end_makes_no_difference(
    given: list[tuple[Key, str, int]], truncates: list[int], cut: int
) -> None:
    """The first micro-batch has the truncate, or the second one; versions are rows that are added and ended."""
    if truncates:  # clocks that go back over a truncate leave no way to tell
        given = sorted(given, key=lambda change: change[2])
    whole = _table([(given, truncates)])
    cut_after = _table([(given[:cut], truncates), (given[cut:], [])])
    cut_before = _table([(given[:cut], []), (given[cut:], truncates)])
    assert _open(cut_after) == _open(cut_before) == _open(whole)
    assert truncates or cut_after == cut_before == whole
    for versions in whole.values():
        assert all(start <= (end if end is not None else 99) for start, end in versions)
        assert all(before[1] is not None and before[1] <= after[0] for before, after in pairwise(versions))


def _table(
    batches: list[tuple[list[tuple[Key, str, int]], list[int]]],
) -> dict[Key, list[tuple[int, int | None]]]:
    table: dict[Key, list[tuple[int, int | None]]] = {}
    truncated: list[int] = []
    for some, truncates in batches:
        known = {
            key: Last(max(end if end is not None else start for start, end in rows), rows[-1][1] is None)
            for key, rows in table.items()
            if rows
        }
        made = changes(*some)
        found = intervals(made, known, [*truncates, *truncated])
        truncated += truncates
        for key, at in found.ended.items():
            start, end = table[key].pop()
            assert end is None
            table[key].append((start, at))
        for version in found.new:
            table.setdefault(made[version.number].key, []).append((version.start, version.end))
    return table


def _open(table: dict[Key, list[tuple[int, int | None]]]) -> dict[Key, int]:
    return {key: start for key, rows in table.items() for start, end in rows if end is None}
