"""Buckets of tokens, and rates over a sliding window, at chosen times."""

from math import inf

import pytest

from ottla.quotas.rates import LONGEST_MS, Rate, TokenBucket, Window, whole_ms

WINDOW = Window(11, 1000)


def bucket(limit: float, window: Window = WINDOW, burst_ms: float | None = None, owed_ms: float = inf) -> TokenBucket:
    made = TokenBucket(window, burst_ms, owed_ms)
    made.limit = limit
    return made


def test_a_burst_may_take_what_kafkas_window_allows_at_once() -> None:
    used = bucket(100)
    used.add(1000, 5_000_000)
    assert used.per_s(5_000_000) == 100
    assert used.excess_ms(5_000_000) == 0
    used.add(500, 5_000_000)
    assert used.excess_ms(5_000_000) == 5000
    assert used.excess_ms(5_004_000) == 1000


@pytest.mark.parametrize("size", [100, 700, 5_000, 50_000])
@pytest.mark.parametrize("under_way", [1, 5])
def test_the_limit_is_held_however_large_and_many_the_requests(size: int, under_way: int) -> None:
    """Within 3 % over any half minute after the burst, if that is many requests long."""
    used, now_ms, sent = bucket(1000), 1_000_000.0, 0.0
    history = []
    while now_ms < 4_000_000:
        for _ in range(under_way):
            used.add(size, now_ms)
            sent += size
            history.append((now_ms, sent))
            now_ms += 10
        now_ms += used.excess_ms(now_ms)
    early = next(both for both in history if both[0] > 1_100_000)
    assert (sent - early[1]) / (history[-1][0] - early[0]) == pytest.approx(1, rel=0.03 + under_way * size / 2_900_000)


def test_tokens_come_back_up_to_a_burst() -> None:
    used = bucket(2, burst_ms=WINDOW.ms)
    assert used.tokens(0) == 22
    used.add(30, 0)
    assert used.tokens(0) == -8
    assert used.excess_ms(0) == 4000
    assert used.excess_ms(4000) == 0
    assert used.tokens(5000) == 2
    assert used.tokens(1_000_000) == 22
    assert used.per_s(0) == 3


def test_what_was_not_used_is_given_back() -> None:
    used = bucket(1)
    used.add(50, 0)
    used.add(-50, 0)
    assert used.tokens(0) == 10
    assert used.per_s(0) == 0


def test_no_more_is_owed_than_was_said() -> None:
    used = bucket(1, owed_ms=11_000)
    used.add(1_000_000, 0)
    assert used.excess_ms(0) == 11_000


def test_a_higher_limit_repays_faster_and_a_lower_one_leaves_a_smaller_burst() -> None:
    used = bucket(1)
    used.add(20, 0)
    assert used.excess_ms(0) == 10_000
    used.limit = 10.0
    assert used.excess_ms(0) == 1000
    idle = bucket(1000)
    idle.add(1, 0)
    idle.limit = 1
    assert idle.tokens(0) == 10


def test_a_window_of_one_sample_is_a_millisecond_long_at_least() -> None:
    used = bucket(1, Window(1, 1000))
    used.add(1, 0)
    assert used.per_s(0) == 1000
    assert used.excess_ms(0) == 999


def test_a_sample_counts_until_the_window_has_passed_its_last_use() -> None:
    rate = Rate(WINDOW)
    rate.add(11, 0)
    rate.add(11, 900)
    assert rate.per_s(11_899) > 0
    assert rate.per_s(11_900) == 0


def test_samples_that_overlap_the_window_lengthen_it() -> None:
    rate = Rate(WINDOW)
    rate.add(1, 0)
    rate.add(1, 999)
    rate.add(1, 11_500)
    assert rate.per_s(11_500) == pytest.approx(3 / 11.5)


def test_few_samples_are_kept_however_often_something_is_used() -> None:
    rate = Rate(WINDOW)
    for at in range(0, 100_000, 7):
        rate.add(1, at)
    assert len(rate._samples) <= WINDOW.samples + 2
    assert rate.per_s(100_000) == pytest.approx(1000 / 7, rel=0.01)


def test_times_fit_into_an_answer() -> None:
    assert whole_ms(0.4) == 0
    assert whole_ms(0.5) == 1
    assert whole_ms(1e15) == LONGEST_MS
