"""How a producer of the client library ends that may have records under way."""

import contextlib
import logging
import time
from typing import Final

from confluent_kafka import KafkaException, Producer

log = logging.getLogger(__name__)

_POLL_S: Final = 0.05
_LONGEST_S: Final = 5.0


def abandon(producer: Producer) -> None:
    """Take back the records that no broker has acknowledged. The producer may be dropped afterwards, not before.

    librdkafka 2.16 frees a transactional producer while its connections still read answers. An answer with
    PRODUCER_FENCED then frees the same memory again, and the process aborts. A producer without records under way
    waits for no such answer.
    """
    with contextlib.suppress(KafkaException):
        producer.purge()
    deadline = time.monotonic() + _LONGEST_S
    while len(producer) and time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):  # the fencing is reported again
            producer.poll(_POLL_S)
    if len(producer):
        log.warning("%d records of a producer that ends are still under way", len(producer))
