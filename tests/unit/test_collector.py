"""Pauses of the garbage collector, with objects of this test's own."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla.collector import FRESH_LOOK_S, LONG_S, QuickCollections


class Clock:
    """Moves on by what each look at it costs."""

    def __init__(self) -> None:
        self.at = 100.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.at += self.step_s
        return self.at


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    callback = QuickCollections(clock)
    gc.unfreeze()
    gc.callbacks.append(callback)
    yield clock
    gc.callbacks.remove(callback)
    gc.freeze()  # as it was, with all that the tests have imported


def test_what_a_long_collection_has_looked_at_is_set_aside(clock: Clock) -> None:
    kept = [[number] for number in range(1000)]
    clock.step_s = LONG_S / 2
    gc.collect()
    assert gc.get_freeze_count() == 0
    clock.step_s = LONG_S
    gc.collect(1)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() > len(kept)


def test_after_an_hour_everything_is_looked_at_again(clock: Clock) -> None:
    class Node:
        freed = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Node.freed += 1

    node = Node()
    clock.step_s = LONG_S
    gc.collect()
    del node
    clock.step_s = 0.0
    gc.collect()
    assert Node.freed == 0  # set aside when it was in use
    clock.at += FRESH_LOOK_S
    gc.collect()
    gc.collect()
    assert Node.freed == 1


def test_a_process_that_ends_does_not_look_at_what_it_has_left() -> None:
    ended = (
        "import gc; from ottla.broker_process import main; main(None, {'node.id': 'x'}); print(gc.get_freeze_count())"
    )
    found = subprocess.run([sys.executable, "-c", ended], capture_output=True, check=True, text=True, timeout=60)
    assert int(found.stdout) > 1000, found.stderr
