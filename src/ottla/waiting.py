"""Waiting for something that cannot be waited for, only looked at again."""

import time
from collections.abc import Callable, Iterator


def tries(within_s: float, *, every_s: float) -> Iterator[None]:
    """Once at once, then again every `every_s` seconds, and a last time when `within_s` seconds are over.

    For a loop that returns when it has what it waits for; what stands after the loop is for the time that is up.
    """
    deadline = time.monotonic() + within_s
    while True:
        yield
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(every_s, left_s))


def wait_until(holds: Callable[[], bool], within_s: float, *, every_s: float) -> bool:
    """Whether `holds` gave true before `within_s` seconds were over; asked every `every_s` seconds."""
    return any(holds() for _ in tries(within_s, every_s=every_s))
