"""Looking again until a deadline."""

import time

import pytest

from ottla.waiting import tries, wait_until


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def test_the_last_try_is_at_the_deadline(clock: Clock) -> None:
    assert [clock.now - 100 for _ in tries(1.0, every_s=0.375)] == [0, 0.375, 0.75, 1.0]
    assert clock.slept == [0.375, 0.375, 0.25]


def test_without_time_there_is_one_try(clock: Clock) -> None:
    assert len(list(tries(0, every_s=1))) == 1
    assert clock.slept == []


def test_a_try_that_takes_long_is_the_last(clock: Clock) -> None:
    for _ in tries(1.0, every_s=0.25):
        clock.sleep(5)
    assert clock.slept == [5]


def test_waiting_ends_as_soon_as_it_holds(clock: Clock) -> None:
    assert wait_until(lambda: clock.now >= 100.5, 10, every_s=0.25)
    assert clock.now == 100.5
    assert not wait_until(lambda: False, 1, every_s=0.25)
    assert clock.now == 101.5
