"""What is counted of a load in transactions: nothing of its warm-up."""

import pytest
from benches import transactions_load
from benches.transactions_load import Measured


class Clock:
    """Stands in for the performance counter."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(transactions_load, "time", clock)
    return clock


def test_the_warm_up_is_left_out(clock: Clock) -> None:
    measured = Measured(warm_up=10)
    measured.commit(6, lambda: clock.passes(5.0))
    measured.commit(6, lambda: clock.passes(5.0))  # reaches the ten, and belongs to them
    for milliseconds in (10, 30, 20):
        clock.passes(1.0)
        measured.commit(100, lambda spent=milliseconds: clock.passes(spent / 1000))  # type: ignore[misc] # a default
    figures = measured.figures()
    assert figures["records_per_s"] == pytest.approx(300 / 3.06)
    assert figures["commit_p50_ms"] == pytest.approx(20)
    assert figures["commit_p99_ms"] == pytest.approx(30)


def test_a_load_that_ends_in_its_warm_up_gives_no_figures(clock: Clock) -> None:
    measured = Measured(warm_up=10)
    measured.commit(10, lambda: clock.passes(1.0))
    with pytest.raises(TimeoutError, match="no transaction was measured among 10 records"):
        measured.figures()
