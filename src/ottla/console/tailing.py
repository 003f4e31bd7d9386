"""Records as they come: those that a filter lets pass, the newest first, at a bounded rate.

A viewer reads a few rows a second, whatever a topic gets. So records are looked at for a part of the time only, and
where more come than that allows, those in between are skipped and counted.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ottla.console.collecting import Found
from ottla.console.records import Search
from ottla.console.scanning import Trouble, consumer_of, is_trouble

ROWS: Final = 100
TICK_S: Final = 0.5
MOST_LOOKED_AT: Final = 2_000
"""Records of a tick."""
MOST_BEHIND: Final = 20_000
"""Records; what is further behind than that is skipped."""


class Tail(NamedTuple):
    """What has come."""

    records: list[Found]
    """The newest first."""
    seen: int
    passed: int
    skipped: int
    problem: str = ""


def tail(properties: Mapping[str, Any], wanted: Search, stop: threading.Event) -> Iterator[Tail | None]:
    """Records after the ranges' ends, from now on until asked to stop; None while nothing changes. Blocks."""
    follower = _Tail(wanted)
    try:
        with consumer_of(properties, **{"fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 4_096}) as consumer:
            consumer.assign([TopicPartition(wanted.topic, number, end) for number, (_, end) in wanted.ranges.items()])
            yield follower.now()
            while not stop.is_set():
                yield follower.now() if follower.tick(consumer, stop) else None
    except Trouble as trouble:
        yield follower.now(str(trouble))


class _Tail:
    def __init__(self, wanted: Search) -> None:
        self._wanted = wanted
        self._rows: deque[Found] = deque(maxlen=ROWS)
        self._seen = self._passed = self._skipped = 0

    def now(self, problem: str = "") -> Tail:
        return Tail(list(reversed(self._rows)), self._seen, self._passed, self._skipped, problem)

    def tick(self, consumer: Consumer, stop: threading.Event) -> bool:
        """Look at what has come within a tick. Returns whether something has."""
        ends_at = time.monotonic() + TICK_S
        looked_at = 0
        while (left_s := ends_at - time.monotonic()) > 0 and not stop.is_set():
            if looked_at >= MOST_LOOKED_AT:
                stop.wait(left_s)
                self._catch_up(consumer)
                break
            messages = [each for each in consumer.consume(500, min(left_s, 0.1)) if _is_record(each)]
            looked_at += len(messages)
            test = self._wanted.test
            passed = [record for record in self._wanted.take(messages) if test is None or test(record)]
            self._passed += len(passed)
            self._rows.extend(Found.of(record, self._wanted.columns) for record in passed[-ROWS:])
        self._seen += looked_at
        return looked_at > 0

    def _catch_up(self, consumer: Consumer) -> None:
        """Skip what is too far behind."""
        for place in consumer.position(consumer.assignment()):
            _, end = consumer.get_watermark_offsets(place, cached=True)
            if place.offset >= 0 and end - place.offset > MOST_BEHIND:
                self._skipped += end - place.offset
                consumer.seek(TopicPartition(place.topic, place.partition, end))


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if is_trouble(error):
        raise KafkaException(error)
    return False
