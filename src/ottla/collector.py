"""Python's garbage collector in a process that serves others, whose pauses it must not notice.

Requests leave no cycles behind, so there is next to nothing to find, however often the collector looks; but a full
collection visits every object, and 200,000 parked partitions would stop the event loop for a tenth of a second.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FIRST: Final = 20_000
"""After so many new objects the collector looks at them; Python's default is 700."""
OLDER: Final = (5, 200)
"""How often it looks at these before it looks at the middle generation, and at that before it looks at everything. The
middle generation is small, since many objects that grow old together make it slow, too."""
LONG_S: Final = 0.01
"""A full collection that takes longer is not made twice of the same objects ..."""
FRESH_LOOK_S: Final = 3600.0
"""... for so long. Then everything is looked at once more: some of it may have become garbage."""


class QuickCollections:
    """Keeps full collections short: what a long one has looked at is set aside (`gc.freeze`). Objects that are set
    aside are still freed when nothing refers to them; only cycles among them wait for the next fresh look."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = 0.0
        self._set_aside: float | None = None
        """Since when objects have been set aside."""

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """As a callback of the collector's."""
        if info["generation"] != 2:
            return
        now = self._now()
        if phase == "start":
            self._began = now
        elif self._set_aside is not None and now - self._set_aside >= FRESH_LOOK_S:
            self._set_aside = None
            gc.unfreeze()
        elif now - self._began >= LONG_S:
            if self._set_aside is None:
                self._set_aside = now
            gc.freeze()


def look_seldom(*, first: int = FIRST) -> None:
    """Have the collector look after `first` new objects, and at old ones seldom: before much is built that stays."""
    gc.set_threshold(first, *OLDER)


def collect_quickly(*, first: int = FIRST) -> None:
    """Have the collector spare what has been built so far, which lives as long as the process, and keep its pauses
    short from now on. `first`: after how many new objects it looks at them."""
    gc.collect(1)  # to look at everything takes a third of a second where there are thousands of logs
    gc.freeze()
    look_seldom(first=first)
    gc.callbacks.append(QuickCollections())


def end_quickly() -> None:
    """Have the interpreter end without a last look at everything: thousands of logs are freed with the process."""
    gc.freeze()
