"""Has clients of librdkafka end before their brokers do.

A test that keeps an exception (`pytest.raises(...) as error`) keeps itself with it, in a cycle, and so its clients.
Until the collector finds them, each looks for brokers that are gone, and writes a line every second.
"""

import gc
import sys
from pathlib import Path
from typing import Final

_THREADS: Final = Path("/proc/self/task")
_MAIN_THREAD: Final = "rdk:main"
"""What librdkafka calls one thread of each client."""
_YOUNG: Final = 1
"""The generation of what a test has just made, which is collected in no time."""


def clients() -> int:
    """How many clients there are in this process."""
    if "confluent_kafka" not in sys.modules or not _THREADS.exists():
        return 0
    found = 0
    for thread in _THREADS.iterdir():
        try:
            found += (thread / "comm").read_text().strip() == _MAIN_THREAD
        except OSError:
            continue  # it has just ended
    return found


def end_unused(*, everywhere: bool) -> None:
    """End clients that nothing but cycles refer to; `everywhere`: also those that have been there for long."""
    if clients():
        gc.collect(_YOUNG)
        if everywhere and clients():
            gc.collect()
