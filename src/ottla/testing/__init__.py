"""Tools for tests, as public API: a broker inside this process, and the seams to steer it.

    from ottla.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

In pytest, the fixture `ottla_broker` of the installed plugin is one such broker per test.
"""

from ottla.testing.broker import Broker

__all__ = ["Broker"]
