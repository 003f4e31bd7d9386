"""What a write changes in the batches of a share partition."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.share.state import DeliveryState, StateBatch, combine

AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def batch(first: int, last: int, state: int = AVAILABLE, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


@pytest.mark.parametrize(
    ("current", "new", "start", "combined"),
    [
        pytest.param([], [], -1, (), id="nothing"),
        pytest.param([], [batch(3, 5)], -1, (batch(3, 5),), id="first"),
        pytest.param([batch(1, 2)], [batch(3, 5)], -1, (batch(1, 5),), id="neighbours of one state"),
        pytest.param([batch(3, 5)], [batch(1, 2)], -1, (batch(1, 5),), id="neighbours, later one first"),
        pytest.param([batch(1, 2)], [batch(4, 5)], -1, (batch(1, 2), batch(4, 5)), id="gaps stay"),
        pytest.param(
            [batch(1, 9)],
            [batch(4, 5, ACKNOWLEDGED)],
            -1,
            (batch(1, 3), batch(4, 5, ACKNOWLEDGED), batch(6, 9)),
            id="some of them acknowledged",
        ),
        pytest.param([batch(1, 9, count=2)], [batch(4, 5, ARCHIVED)], -1, (batch(1, 9, count=2),), id="late write"),
        pytest.param([batch(1, 9)], [batch(1, 9, count=2)], -1, (batch(1, 9, count=2),), id="once more"),
        pytest.param([batch(1, 5)], [batch(4, 9, count=2)], -1, (batch(1, 3), batch(4, 9, count=2)), id="overlap"),
        pytest.param([batch(1, 4), batch(6, 9)], [], 5, (batch(6, 9),), id="start between batches"),
        pytest.param([batch(1, 4), batch(6, 9)], [], 7, (batch(7, 9),), id="start in a batch"),
        pytest.param([batch(1, 4), batch(6, 9)], [batch(2, 3, count=3)], 10, (), id="start behind all"),
    ],
)
def test_a_write(current: list[StateBatch], new: list[StateBatch], start: int, combined: object) -> None:
    assert combine(current, new, start) == combined


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from(list(DeliveryState)),
        st.integers(0, 3),
    ),
    max_size=6,
)


@given(st.lists(st.tuples(BATCHES, st.integers(-1, 30)), max_size=4))
def test_writes_are_what_they_are_for_each_offset(writes: list[tuple[list[StateBatch], int]]) -> None:
    """The slow twin keeps a dictionary of offsets."""
    combined: tuple[StateBatch, ...] = ()
    expected: dict[int, tuple[int, int]] = {}
    for new, start in writes:
        combined = combine(combined, new, start)
        for each in new:
            for offset in range(each.first_offset, each.last_offset + 1):
                known = expected.get(offset, (-1, -1))
                expected[offset] = max(known, (each.delivery_count, each.delivery_state))
        expected = {offset: state for offset, state in expected.items() if offset >= start}
    told = {
        offset: (each.delivery_count, each.delivery_state)
        for each in combined
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    assert told == expected
    assert sum(each.last_offset - each.first_offset + 1 for each in combined) == len(told), "batches overlap"
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "neighbours of one state"
