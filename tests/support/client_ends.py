"""Has clients end before their brokers do.

A test that keeps an exception (`pytest.raises(...) as error`) keeps itself with it, in a cycle, and so its clients.
Until the collector finds them, each client of librdkafka looks for brokers that are gone, and writes a line every
second; clients in Python leave sockets, which the collector reports as errors of the test that runs when it finds them.
"""

import gc
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

_THREADS: Final = Path("/proc/self/task")
_MAIN_THREAD: Final = "rdk:main"
"""What librdkafka calls one thread of each client."""
_IN_PYTHON: Final = frozenset({"kafka", "aiokafka"})
"""The packages of clients that open sockets of their own."""
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


def uses_clients_in_python(module: ModuleType) -> bool:
    """Has this module of tests imported anything of kafka-python or aiokafka?"""
    origins = (getattr(each, "__module__", None) or getattr(each, "__name__", "") for each in vars(module).values())
    return any(str(origin).partition(".")[0] in _IN_PYTHON for origin in origins)


def end_unused(*, finished: ModuleType | None) -> None:
    """End clients that nothing but cycles refer to.

    With a module whose last test has `finished` also clients that have been there for long, and sockets of clients in
    Python: a later test would be blamed for them.
    """
    if clients():
        gc.collect(_YOUNG)
    if finished is not None and (clients() or uses_clients_in_python(finished)):
        gc.collect()
