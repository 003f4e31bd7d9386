"""Tools for tests, as public API: a broker inside this process, and the seams to steer it.

    from ottla.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

`FaultyFS` is a disk that loses, tears and reorders what was not synced; `ManualClock` a clock that waits for you.
In pytest, the fixture `ottla_broker` of the installed plugin is one such broker per test.
"""

from ottla.testing.broker import Broker
from ottla.testing.faulty_fs import FaultyFS
from ottla.testing.manual_clock import ManualClock

__all__ = ["Broker", "FaultyFS", "ManualClock"]
