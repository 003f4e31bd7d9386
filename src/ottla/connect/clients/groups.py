"""Places in consumer groups that outlast a crash (KIP-345), and are given up by members that end in an orderly way."""

import contextlib
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException

UNTIL_ANSWERED_S: Final = 3600.0
"""The timeout of requests about groups to give to librdkafka, which takes none that is longer.

When a coordinator answers after that timeout, librdkafka aborts the process (confluentinc/librdkafka#4605). Wait for
the answer as long as it is wanted, and if there is none, let go of the client.
"""
_LEAVING_S: Final = 2.0


def leave(consumer: Consumer) -> None:
    """Leave the group, and close.

    Closing alone would keep the place of a static member until its session is over, and with it its partitions.
    """
    with contextlib.suppress(KafkaException, RuntimeError):  # it may be fenced, or closed
        consumer.unsubscribe()
        until = time.monotonic() + _LEAVING_S
        while consumer.assignment() and time.monotonic() < until:
            consumer.poll(0.01)
    consumer.close()
