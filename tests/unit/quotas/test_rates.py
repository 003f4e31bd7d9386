"""Rates over a sliding window, and buckets of tokens, at chosen times."""

from math import inf

import pytest

from ottla.quotas.rates import LONGEST_MS, Rate, TokenBucket, Window, whole_ms

WINDOW = Window(11, 1000)


def test_a_burst_counts_as_if_the_window_had_been_idle() -> None:
    rate = Rate(WINDOW)
    rate.limit = 100.0
    rate.add(1000, 5_000_000)
    assert rate.per_s(5_000_000) == 100.0
    assert rate.excess_ms(5_000_000) == 0
    rate.add(500, 5_000_000)
    assert rate.excess_ms(5_000_000) == 5000


def test_throttled_so_long_a_client_is_at_its_limit_on_average() -> None:
    rate, now_ms, sent = Rate(WINDOW), 1_000_000.0, 0.0
    rate.limit = 1000.0
    while now_ms < 1_120_000:
        rate.add(700, now_ms)
        sent += 700
        now_ms += 10 + rate.excess_ms(now_ms)
    assert sent / 120 == pytest.approx(1000, rel=0.09)  # the first ten seconds' worth goes at once
    sent_late, since = 0.0, now_ms
    while now_ms < since + 60_000:
        rate.add(700, now_ms)
        sent_late += 700
        now_ms += 10 + rate.excess_ms(now_ms)
    assert sent_late / (now_ms - since) * 1000 == pytest.approx(1000, rel=0.03)


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


def test_what_was_not_used_is_taken_back() -> None:
    rate = Rate(WINDOW)
    rate.add(10, 0)
    rate.add(-10, 1500)
    assert rate.per_s(1500) == 0
    rate.add(20, 1600)
    assert rate.per_s(20_000) == 0
    rate.add(5, 20_000)
    assert rate.per_s(20_000) == pytest.approx(0.5)


def test_few_samples_are_kept_however_often_something_is_used() -> None:
    rate = Rate(WINDOW)
    for at in range(0, 100_000, 7):
        rate.add(1, at)
        rate.per_s(at)
    assert len(rate._samples) <= WINDOW.samples + 1
    assert rate.per_s(100_000) == pytest.approx(1000 / 7, rel=0.01)


def test_a_window_of_one_sample_is_a_millisecond_long_at_least() -> None:
    rate = Rate(Window(1, 1000))
    rate.limit = 1.0
    rate.add(1, 0)
    assert rate.per_s(0) == 1000
    assert rate.excess_ms(0) == 999


def test_tokens_come_back_up_to_a_window() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.limit = 2.0
    assert bucket.tokens(0) == 22
    bucket.add(30, 0)
    assert bucket.tokens(0) == -8
    assert bucket.excess_ms(0) == 4000
    assert bucket.excess_ms(4000) == 0
    assert bucket.tokens(5000) == 2
    assert bucket.tokens(1_000_000) == 22
    assert bucket.per_s(0) == 3


def test_a_higher_limit_repays_faster() -> None:
    bucket = TokenBucket(WINDOW)
    bucket.limit = 1.0
    bucket.add(21, 0)
    assert bucket.excess_ms(0) == 10_000
    bucket.limit = 10.0
    assert bucket.excess_ms(0) == 1000


def test_times_fit_into_an_answer() -> None:
    assert whole_ms(0.4) == 0
    assert whole_ms(0.5) == 1
    assert whole_ms(1e15) == LONGEST_MS
    assert Rate(WINDOW).limit == inf
