"""Tools for tests, as public API: a broker inside this process, and the seams to steer it.

    from ottla.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

`FaultyFS` is a disk that loses, tears and reorders what was not synced; `ManualClock` a clock that waits for you.
`ottla.testing.simulation.Cluster` runs an asyncio client of yours beside simulated brokers, with faults by a seed.
`ConnectWorker` runs connectors in this process, `ConnectProcess` in one of its own, which can be killed.
In pytest, the fixture `ottla_broker` of the installed plugin is one such broker per test, and with the option
`ottla_loop_limit_ms` a test fails with `LoopBlocked` if its broker's event loop was held up for longer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.connect import ConnectProcess, ConnectWorker
    from ottla.testing.faulty_fs import FaultyFS
    from ottla.testing.loop_watch import LoopBlocked
    from ottla.testing.manual_clock import ManualClock

__all__ = ["Broker", "ConnectProcess", "ConnectWorker", "FaultyFS", "LoopBlocked", "ManualClock"]

_MODULES = {
    "Broker": "broker",
    "ConnectProcess": "connect",
    "ConnectWorker": "connect",
    "FaultyFS": "faulty_fs",
    "LoopBlocked": "loop_watch",
    "ManualClock": "manual_clock",
}


def __getattr__(name: str) -> Any:
    # The pytest plugin lives in this package and is loaded by every run of pytest, which need not pay for a broker.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
