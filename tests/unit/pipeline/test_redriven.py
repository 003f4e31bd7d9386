"""Which letters have been sent, over several redrives with different filters."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.redriven import MAX_METADATA_BYTES, Redriven


def redrive(state: tuple[int, str], letters: list[int], wanted: set[int]) -> tuple[tuple[int, str], list[int]]:
    """One whole redrive: what it commits, and what it sends."""
    redriven = Redriven(*state)
    sent: list[int] = []
    for offset in letters:
        if offset < redriven.start:
            continue
        done = redriven.includes(offset)
        if not done and offset in wanted:
            sent.append(offset)
            done = True
        redriven.pass_over(offset, sent=done)
    return redriven.commit(), sent


def test_the_offset_moves_past_what_has_been_sent() -> None:
    state, sent = redrive((-1001, ""), [0, 1, 3], {0, 1, 3})
    assert sent == [0, 1, 3]
    assert state == (4, "")


def test_what_a_filter_left_out_is_sent_by_the_next_and_nothing_twice() -> None:
    letters = [10, 11, 12, 14, 15, 17]
    state, sent = redrive((10, ""), letters, {10, 11, 14, 17})
    assert sent == [10, 11, 14, 17]
    assert state[0] == 12
    assert state[1].startswith("1:")
    state, sent = redrive(state, [*letters, 18], {11, 12, 14, 18})
    assert sent == [12, 18]
    assert state[0] == 15
    state, sent = redrive(state, [*letters, 18], {*letters, 18})
    assert sent == [15]
    assert state == (19, "")


def test_a_commit_in_the_middle_keeps_what_was_sent_beyond_it() -> None:
    state, _ = redrive((0, ""), list(range(10)), {1, 8, 9})
    redriven = Redriven(*state)
    redriven.pass_over(0, sent=True)
    state = redriven.commit()
    assert state[0] == 2  # 1 had been sent already
    assert redrive(state, list(range(10)), set(range(10)))[1] == [2, 3, 4, 5, 6, 7]


def test_a_run_goes_on_over_offsets_without_a_letter() -> None:
    letters = [0, *range(1, 20_000, 2)]  # each letter in a transaction of its own
    state, _ = redrive((0, ""), letters, set(letters) - {0})
    assert state[0] == 0
    assert len(state[1]) < 30


def test_letters_that_the_log_has_let_go_are_no_obstacle() -> None:
    state, _ = redrive((0, ""), list(range(10)), {1, 6, 7})
    assert state[0] == 0
    redriven = Redriven(*state, first=5)
    assert redriven.start == 5
    assert [offset for offset in range(5, 10) if redriven.includes(offset)] == [6, 7]
    redriven.pass_over(5, sent=True)
    assert redriven.commit() == (8, "")


def test_metadata_of_another_program_is_refused() -> None:
    for metadata in ("hello", "1:AAAA", "1:?"):
        with pytest.raises(ValueError, match="does not list the letters"):
            Redriven(3, metadata)


def test_so_many_letters_left_out_at_random_are_remembered() -> None:
    letters = list(range(15_000))
    chosen = set(random.Random(1).sample(letters, 7_500))
    state, _ = redrive((0, ""), letters, chosen)
    assert len(state[1]) <= MAX_METADATA_BYTES
    assert redrive(state, letters, set(letters))[1] == sorted(set(letters) - chosen)


@given(
    st.sets(st.integers(0, 300)).flatmap(
        lambda letters: st.tuples(st.just(sorted(letters)), st.lists(st.sets(st.integers(0, 300)), max_size=4))
    )
)
def test_whatever_the_filters_each_letter_is_sent_once(case: tuple[list[int], list[set[int]]]) -> None:
    letters, filters = case
    state = (-1001, "")
    sent: list[int] = []
    for wanted in [*filters, set(letters)]:
        state, now = redrive(state, letters, wanted)
        sent += now
    assert sorted(sent) == letters
    assert state[1] == ""


@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)), st.integers(0, 200), st.sets(st.integers(0, 200)))
def test_a_crash_after_any_commit_loses_and_repeats_nothing(
    letters: set[int], before: set[int], cut: int, wanted: set[int]
) -> None:
    ordered = sorted(letters)
    state, sent = redrive((-1001, ""), ordered, before)
    redriven = Redriven(*state)
    for offset in ordered:
        if redriven.start <= offset <= cut:
            done = redriven.includes(offset)
            if not done and offset in wanted:
                sent.append(offset)
            redriven.pass_over(offset, sent=done or offset in wanted)
    state, rest = redrive(redriven.commit(), ordered, set(ordered))
    assert sorted(sent + rest) == ordered
    assert state[1] == ""
