"""Timeouts of parked requests: each on time, one timer of the loop for all that have the same."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ottla.replication.timeouts import Timeouts


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(self.now + delay, lambda: callback(*args)))
        return self.timers[-1]

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def run_until(self, now: float) -> None:
        while due := [timer for timer in self.timers if not timer.is_cancelled and timer.at <= now]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = first.at
            first.call()
        self.now = now


class Waiter:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.expired_at: list[float] = []

    def expire(self) -> None:
        self.expired_at.append(self._loop.now)


def timeouts_of(loop: Loop) -> Timeouts:
    return Timeouts(cast(asyncio.AbstractEventLoop, loop))


def test_each_expires_at_its_time() -> None:
    loop = Loop()
    timeouts = timeouts_of(loop)
    waiters = [Waiter(loop) for _ in range(4)]
    timeouts.start(waiters[0], 5)
    loop.run_until(102)
    timeouts.start(waiters[1], 5)
    timeouts.start(waiters[2], 1)
    loop.run_until(104)
    timeouts.start(waiters[3], 5)
    loop.run_until(200)
    assert [waiter.expired_at for waiter in waiters] == [[105], [107], [103], [109]]


def test_those_with_the_same_timeout_share_a_timer() -> None:
    loop = Loop()
    timeouts = timeouts_of(loop)
    for _ in range(100):
        timeouts.start(Waiter(loop), 30)
    assert len(loop.timers) == 1


def test_who_is_stopped_does_not_expire() -> None:
    loop = Loop()
    timeouts = timeouts_of(loop)
    first, second = Waiter(loop), Waiter(loop)
    timeouts.start(first, 5)
    loop.run_until(101)
    timeouts.start(second, 5)
    timeouts.stop(first, 5)
    timeouts.stop(first, 5)
    loop.run_until(200)
    assert (first.expired_at, second.expired_at) == ([], [106])


def test_nothing_stays_of_those_that_are_stopped() -> None:
    loop = Loop()
    timeouts = timeouts_of(loop)
    for number in range(100):  # a client may send a different timeout with every request
        waiter = Waiter(loop)
        timeouts.start(waiter, number)
        timeouts.stop(waiter, number)
    assert all(timer.is_cancelled for timer in loop.timers)


def test_a_timer_that_calls_early_is_on_time() -> None:
    loop = Loop()
    timeouts = timeouts_of(loop)
    waiter = Waiter(loop)
    timeouts.start(waiter, 5)
    loop.now = 104.9996
    loop.timers.pop().call()
    assert (len(waiter.expired_at), loop.timers) == (1, [])
