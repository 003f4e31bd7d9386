"""Percentiles by nearest rank."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.perf.percentiles import percentile, summarize_ms


def test_known_values() -> None:
    hundred = [float(value) for value in range(1, 101)]
    assert [percentile(hundred, percent) for percent in (0, 1, 50, 99, 99.9, 100)] == [1, 1, 50, 99, 100, 100]
    assert percentile([7.0], 50) == 7.0


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    assert summarize_ms([]) == {}


def test_summary_is_in_milliseconds() -> None:
    summary = summarize_ms([0.003, 0.001, 0.002])
    assert summary == {
        "mean": 2.0, "p50": 2.0, "p90": 3.0, "p95": 3.0, "p99": 3.0, "p99.9": 3.0, "max": 3.0,
    }  # fmt: skip


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=200), st.floats(0.1, 100))
def test_enough_values_lie_at_or_below_a_percentile(values: list[float], percent: float) -> None:
    found = percentile(sorted(values), percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9
    assert percentile(sorted(values), 50) <= statistics.median_high(values)
