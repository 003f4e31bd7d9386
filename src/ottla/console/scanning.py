"""Reads ranges of a topic's partitions, batch by batch. Nothing is committed, and no group is used.

Bounded are the time, the wait for brokers that are silent, and what is held: a batch, and what librdkafka has fetched.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

T = TypeVar("T")

SILENCE_S: Final = 10.0
BATCH: Final = 2_000
WAIT_S: Final = 0.02

OF_GROUPS: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE)
"""librdkafka asks for a group's coordinator although no group is used: users need no right to one."""

Ranges = Mapping[int, tuple[int, int]]
"""By partition: the first offset, and the one after the last."""


class Trouble(Exception):
    """Reading ended early; the message has the reason, for a page."""


@contextmanager
def consumer_of(properties: Mapping[str, Any], **settings: Any) -> Iterator[Consumer]:
    """A consumer that reads by itself. Raises Trouble for what Kafka's client reports."""
    consumer = Consumer(
        {
            **properties,
            "client.id": "ottla-console",
            "group.id": "ottla-console",  # librdkafka asks for one; it is never joined, and nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 16_384,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 50,
            "log_level": 2,  # pages say what goes wrong
            **settings,
        }
    )
    try:
        yield consumer
    except KafkaException as error:
        raise Trouble(str(error.args[0].str())) from error
    finally:
        consumer.close()


class Scan:
    """Reads a topic's ranges, one window of them after another, and knows how far it is."""

    def __init__(self, consumer: Consumer, topic: str, ranges: Ranges, stop: threading.Event, longest_s: float) -> None:
        self._consumer = consumer
        self._topic = topic
        self._stop = stop
        self._longest_s = longest_s
        self._ends_at = time.monotonic() + longest_s
        self._position: dict[int, tuple[int, int]] = {}
        self._scanned = 0
        self.to_scan = sum(max(end - first, 0) for first, end in ranges.values())
        """Offsets, of which some may have no record."""

    @property
    def scanned(self) -> int:
        """Offsets that have been looked at."""
        return self._scanned + sum(at - first for first, at in self._position.values())

    def read(self, window: Ranges) -> Iterator[list[Message]]:
        """The records of a window, in batches; an empty one while nothing comes. Ends early if asked to stop.

        Raises Trouble, KafkaException.
        """
        left = {number: end for number, (first, end) in window.items() if first < end}
        position = self._position = {number: (window[number][0], window[number][0]) for number in left}
        if not left:
            return
        self._consumer.assign([TopicPartition(self._topic, number, window[number][0]) for number in left])
        heard = time.monotonic()
        while left and not self._stop.is_set():
            messages = self._consumer.consume(BATCH, WAIT_S)
            now = time.monotonic()
            if messages:
                heard = now
            elif now - heard > SILENCE_S:
                raise Trouble("the brokers do not answer")
            yield _within(messages, left, position)
            if time.monotonic() > self._ends_at:
                raise Trouble(f"stopped after {self._longest_s:.0f} s")
        self._scanned = self.scanned
        self._position = {}

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Items, as long as reading may go on: one record may take a second to decode. Raises Trouble."""
        for item in items:
            if self._stop.is_set():
                return
            if time.monotonic() > self._ends_at:
                raise Trouble(f"stopped after {self._longest_s:.0f} s")
            yield item


def is_trouble(error: KafkaError) -> bool:
    """Whether an error that came in place of a record ends the reading."""
    return error.code() != KafkaError._PARTITION_EOF and error.code() not in OF_GROUPS


def _within(messages: list[Message], left: dict[int, int], position: dict[int, tuple[int, int]]) -> list[Message]:
    """The messages before the ends of their ranges; ranges that they end are taken out."""
    batch = []
    reached: dict[int, int] = {}
    for message in messages:
        number = message.partition()
        end = left.get(number)  # type: ignore[arg-type]
        if end is None:
            continue
        error = message.error()
        if error is None:
            offset = message.offset()
            if offset < end:  # type: ignore[operator]
                batch.append(message)
            reached[number] = offset + 1  # type: ignore[operator,index]
            if offset + 1 < end:  # type: ignore[operator]
                continue
        elif is_trouble(error):
            raise KafkaException(error)
        elif error.code() in OF_GROUPS:
            continue
        reached[number] = end  # type: ignore[index]
        del left[number]  # type: ignore[arg-type]
    for number, at in reached.items():
        first, _ = position[number]
        position[number] = first, at
    return batch
