"""Whether a broker lets a client of librdkafka log in: known as soon as it says so, however busy the machine is."""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

_WITHIN_S: Final = 60.0


def accepts(client: Callable[[Callable[[KafkaError], None]], AdminClient]) -> bool:
    """Have a client log in that is made with the callback for its errors.

    Raises:
        AssertionError: It was neither answered nor refused.
    """
    heard: list[KafkaError] = []
    asking = client(heard.append)
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        asking.poll(0)
        try:
            return bool(asking.list_topics(timeout=0.5).brokers)
        except KafkaException:
            asking.poll(0)
            if any(error.code() == KafkaError._AUTHENTICATION for error in heard):
                return False
    raise AssertionError(f"the broker neither accepts nor refuses a login: {heard}")
