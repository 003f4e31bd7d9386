"""Everything that programs leave to chance or to the clock follows from the seed, while a simulation runs."""

import gc
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from ottla.testing.simulation.loop import SimClock, SimLoop


@contextmanager
def chance_by_seed(seed: int) -> Iterator[None]:
    """Seed the module `random`, and `os.urandom`, which uuid4 asks."""
    source = Random(seed)
    before, state = os.urandom, random.getstate()
    os.urandom = source.randbytes
    random.seed(seed)
    try:
        yield
    finally:
        os.urandom = before
        random.setstate(state)


@contextmanager
def time_of_the_loop(loop: SimLoop) -> Iterator[None]:
    """`time.monotonic` and `time.time` are virtual: client libraries ask them beside the loop's own time."""
    clock = SimClock(loop)
    monotonic, wall = time.monotonic, time.time
    time.monotonic = clock.monotonic
    time.time = lambda: clock.now_ms() / 1000
    try:
        yield
    finally:
        time.monotonic, time.time = monotonic, wall


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector away: it would end what waits in killed processes, whenever it runs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
