"""The window of records under way, against a plain dict of offsets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.share.window import Held, RecordState, Run, Status, Window

AVAILABLE = Status(RecordState.AVAILABLE)
ACQUIRED = Status(RecordState.ACQUIRED, 1, Held("m", 5.0))
DONE = Status(RecordState.ACKNOWLEDGED, 1)


def test_neighbours_of_equal_status_are_one_run() -> None:
    window = Window(10)
    window.put(10, 14, AVAILABLE)
    window.put(15, 19, AVAILABLE)
    assert list(window.runs()) == [Run(10, 19, AVAILABLE)]
    window.put(12, 12, DONE)
    window.put(14, 14, DONE)
    window.put(13, 13, DONE)
    assert list(window.runs()) == [Run(10, 11, AVAILABLE), Run(12, 14, DONE), Run(15, 19, AVAILABLE)]
    assert list(window.runs(11, 13)) == [Run(11, 11, AVAILABLE), Run(12, 13, DONE)]


def test_the_start_moves_within_a_run_and_past_the_end() -> None:
    window = Window(0)
    window.put(0, 9, AVAILABLE)
    window.move_start(4)
    assert list(window.runs()) == [Run(4, 9, AVAILABLE)]
    window.move_start(20)
    assert (window.start, window.end, len(window)) == (20, 20, 0)
    window.put(20, 20, DONE)
    assert list(window.runs()) == [Run(20, 20, DONE)]


def test_nothing_is_put_apart_from_the_window() -> None:
    window = Window(5)
    with pytest.raises(ValueError, match="does not belong"):
        window.put(6, 7, AVAILABLE)
    with pytest.raises(ValueError, match="does not belong"):
        window.put(4, 7, AVAILABLE)


@pytest.mark.parametrize(
    ("status", "state"),
    [(DONE, RecordState.AVAILABLE), (AVAILABLE, RecordState.ACKNOWLEDGED), (ACQUIRED, RecordState.ACQUIRED)],
)
def test_illegal_transitions_raise(status: Status, state: RecordState) -> None:
    with pytest.raises(ValueError, match="cannot go"):
        status.to(state, delivery_count=1)


def test_what_has_to_be_written_cannot_change_meanwhile() -> None:
    written = ACQUIRED.to(RecordState.AVAILABLE, delivery_count=1, held=ACQUIRED.held, write=3)
    assert not written.is_available
    with pytest.raises(ValueError, match="cannot go"):
        written.to(RecordState.ACQUIRED, delivery_count=2)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.sampled_from([AVAILABLE, ACQUIRED, DONE]))))
def test_agrees_with_a_dict(steps: list[tuple[int, int, Status]]) -> None:
    window = Window(0)
    model: dict[int, Status] = {}
    for number, (offset, length, status) in enumerate(steps):
        if number % 5 == 4:
            window.move_start(offset)
            model = {known: value for known, value in model.items() if known >= window.start}
            continue
        first = min(max(offset, window.start), window.end)
        window.put(first, first + length, status)
        model |= dict.fromkeys(range(first, first + length + 1), status)
        assert {at: run.status for run in window.runs() for at in range(run.first, run.last + 1)} == model
        runs = list(window.runs())
        assert all(a.last + 1 == b.first and a.status != b.status for a, b in pairwise(runs))
        assert all(window.status(at) == model.get(at) for at in range(-1, 45))


def test_only_what_is_held_can_be_renewed() -> None:
    assert ACQUIRED.renewed(9.0).held == Held("m", 9.0)
    with pytest.raises(ValueError, match="AVAILABLE is not acquired"):
        AVAILABLE.renewed(9.0)
