"""Waiting for what a cluster does in its own time, without sleeping longer than needed."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(question: Callable[..., T | None], *, timeout_s: float = 60.0, interval_s: float = 0.05) -> T:
    """Ask until the answer is truthy, and return it.

    Raises:
        AssertionError: still falsy after `timeout_s`; the message shows the last answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s; the last answer was {answer!r}"
        time.sleep(interval_s)
