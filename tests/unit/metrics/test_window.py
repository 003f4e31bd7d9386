"""Means, maxima and rates of the last minute."""

import pytest

from ottla.metrics.window import PERIOD_S, Window


def test_a_rate_is_over_the_time_since_the_first_value() -> None:
    window = Window(0.0)
    assert (window.rate(5.0), window.mean(5.0), window.largest(5.0)) == (0, 0, 0)
    window.add(100, 1.0)
    window.add(300, 9.0)
    assert window.rate(10.0) == 40
    assert (window.mean(10.0), window.largest(10.0)) == (200, 300)
    assert (window.count, window.total) == (2, 400)


def test_a_first_batch_is_no_million_a_second() -> None:
    window = Window(5.0)
    window.add(500, 5.001)
    assert window.rate(5.002) == 500


def test_what_is_older_than_a_minute_does_not_count() -> None:
    window = Window(0.0)
    window.add(1000, 0.0)
    window.add(10, PERIOD_S + 1)
    assert window.largest(PERIOD_S + 2) == 1000
    assert window.largest(2 * PERIOD_S + 1) == 10
    assert window.rate(10 * PERIOD_S) == 0, "nothing came for minutes"
    window.add(7, 10 * PERIOD_S)
    assert window.largest(10 * PERIOD_S + 1) == 7
    assert window.count == 3


@pytest.mark.parametrize("every_s", [0.5, 7.0, 29.0])
def test_a_steady_rate_is_that_rate(every_s: float) -> None:
    window, now = Window(0.0), 0.0
    for _ in range(400):
        now += every_s
        window.add(20 * every_s, now)
    assert window.rate(now) == pytest.approx(20, rel=1.0)
    assert window.mean(now) == pytest.approx(20 * every_s)
