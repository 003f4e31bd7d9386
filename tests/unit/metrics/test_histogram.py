"""Durations in buckets: quantiles, periods, and extremes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics.histogram import PERIOD_S, Durations


def test_quantiles_are_within_an_eighth() -> None:
    chooser = random.Random(1)
    durations = Durations()
    values = sorted(chooser.expovariate(1 / 0.005) for _ in range(20_000))
    for value in values:
        durations.add(value)
    for share, found in zip((0.5, 0.95, 0.99), durations.quantiles(0.0, (0.5, 0.95, 0.99)), strict=True):
        assert found == pytest.approx(values[int(share * len(values))], rel=0.13)
    assert (durations.count, durations.total_s) == (20_000, pytest.approx(sum(values)))


@given(st.floats(0, 1e7, allow_nan=False))
def test_a_single_duration_is_every_quantile(value: float) -> None:
    durations = Durations()
    durations.add(value)
    (found,) = durations.quantiles(0.0, (0.99,))
    assert found == pytest.approx(min(value, 500_000), rel=0.13, abs=2e-6)


def test_times_that_went_back_count_as_zero() -> None:
    durations = Durations()
    durations.add(-1.0)
    assert durations.quantiles(0.0, (0.5,)) == [0.0]


def test_quantiles_forget_what_is_older_than_two_periods() -> None:
    durations = Durations()
    assert durations.quantiles(0.0, (0.5,)) == [0.0]
    durations.add(8.0)
    assert durations.quantiles(1.0, (0.5,))[0] > 1
    durations.quantiles(PERIOD_S, (0.5,))
    durations.add(0.001)
    assert durations.quantiles(PERIOD_S + 1, (0.99,))[0] > 1
    durations.quantiles(2 * PERIOD_S, (0.5,))
    assert durations.quantiles(3 * PERIOD_S, (0.99,))[0] == pytest.approx(0.001, rel=0.13)
    assert durations.count == 2


@given(st.lists(st.floats(-1, 1e6), max_size=50))
def test_many_at_once_count_as_one_by_one(durations: list[float]) -> None:
    together, alone = Durations(), Durations()
    together.add_all(durations)
    for each in durations:
        alone.add(each)
    assert (together.count, together._now) == (alone.count, alone._now)
    assert together.total_s == pytest.approx(alone.total_s)
