"""Records of a topic for a page: the newest, the oldest, from an offset or a time; all, or what a filter lets pass.

    oldest, offset, time   read forward from there
    newest                 read the last offsets of each partition; with a filter, go back until enough is found

Bounded are the records that are kept, time, and searches at a time. Nothing is committed, and no group is used.
"""

import heapq
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.console.access.masks import MASKED, Masks, shown
from ottla.console.expressions import Row, Test
from ottla.console.values import SHOWN_CHARACTERS, WHOLE_CHARACTERS, Shown, read_any, show

MOST_RECORDS: Final = 500
NO_MASKS: Final = Masks()
WINDOW: Final = 20_000
"""Offsets of a partition that are looked at together, backward from its end."""
LONGEST_S: Final = 120.0
SILENCE_S: Final = 10.0
BATCH: Final = 2_000
OF_GROUPS: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE)
"""librdkafka asks for a group's coordinator although no group is used: users need no right to one."""
REPORT_EVERY_S: Final = 0.3


class Found(NamedTuple):
    """A record, as a page shows it. Ordered by time, then place."""

    timestamp: int
    partition: int
    offset: int
    key: Shown
    value: Shown
    headers: tuple[tuple[str, Shown], ...]


class Progress(NamedTuple):
    """How far a search is."""

    records: list[Found]
    """The records found so far, the newest first."""
    scanned: int
    to_scan: int
    """Offsets, of which some may have no record."""
    is_complete: bool
    problem: str = ""


class Search(NamedTuple):
    """What to look for."""

    topic: str
    ranges: Mapping[int, tuple[int, int]]
    """By partition: the first offset to look at, and the one after the last."""
    newest: bool
    most: int
    test: Test | None = None
    whole: bool = False
    """Show keys and values whole."""
    masks: Masks = NO_MASKS
    """What the viewer may not see: replaced before a filter or a page gets the record."""


def search(properties: Mapping[str, Any], wanted: Search, stop: threading.Event) -> Iterator[Progress]:
    """Read, and report again and again; the last report is complete, or has a problem. Blocks, in a thread."""
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
        }
    )
    try:
        yield from _Scan(consumer, wanted, stop).run()
    except KafkaException as error:
        yield Progress([], 0, 0, True, str(error.args[0].str()))
    finally:
        consumer.close()


class _Scan:
    def __init__(self, consumer: Consumer, wanted: Search, stop: threading.Event) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._stop = stop
        self._found: list[Found] = []
        self._scanned = 0
        self._to_scan = sum(end - first for first, end in wanted.ranges.values())
        self._ends_at = time.monotonic() + LONGEST_S

    def run(self) -> Iterator[Progress]:
        for window in self._windows():
            yield from self._read(window)
            if self._is_enough() or self._stop.is_set():
                break
            if time.monotonic() > self._ends_at:
                yield self._progress(complete=True, problem=f"stopped after {LONGEST_S:.0f} s")
                return
        yield self._progress(complete=True)

    def _windows(self) -> Iterator[dict[int, tuple[int, int]]]:
        """Ranges that are read together. The newest records are known only when each partition was looked at."""
        wanted = self._wanted
        if not wanted.newest:
            yield {number: window for number, window in wanted.ranges.items() if window[0] < window[1]}
            return
        width = WINDOW if wanted.test is not None else 2 * wanted.most
        left = dict(wanted.ranges)
        while left := {number: window for number, window in left.items() if window[0] < window[1]}:
            yield {number: (max(first, end - width), end) for number, (first, end) in left.items()}
            left = {number: (first, max(first, end - width)) for number, (first, end) in left.items()}
            width = WINDOW

    def _is_enough(self) -> bool:
        return len(self._found) >= self._wanted.most

    def _read(self, window: dict[int, tuple[int, int]]) -> Iterator[Progress]:
        topic = self._wanted.topic
        if not window:
            return
        self._consumer.assign([TopicPartition(topic, number, first) for number, (first, _) in window.items()])
        position = {number: first for number, (first, _) in window.items()}
        open_ = set(window)
        heard = reported = time.monotonic()
        while open_ and not self._stop.is_set() and time.monotonic() < self._ends_at:
            messages = self._consumer.consume(BATCH, 0.05)
            now = time.monotonic()
            if messages:
                heard = now
            elif now - heard > SILENCE_S:
                yield self._progress(complete=True, problem="the brokers do not answer")
                self._stop.set()
                return
            for message in messages:
                number = message.partition() or 0
                error = message.error()
                if number not in open_ or (error is not None and error.code() in OF_GROUPS):
                    continue
                end = window[number][1]
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    at = end
                else:
                    offset = message.offset() or 0
                    if offset < end:
                        self._take(message)
                    at = min(offset + 1, end)
                self._scanned += max(at - position[number], 0)
                position[number] = max(position[number], at)
                if at >= end:
                    open_.discard(number)
            if not self._wanted.newest and self._is_enough():
                return
            if now - reported > REPORT_EVERY_S:
                reported = now
                yield self._progress()

    def _take(self, message: Message) -> None:
        wanted = self._wanted
        key, value = _bytes(message.key()), _bytes(message.value())
        kind, timestamp = message.timestamp()
        at = timestamp if kind else 0
        if wanted.test is not None and not wanted.test(self._row(message, at, key, value)):
            return
        place = at, message.partition() or 0, message.offset() or 0
        if wanted.newest and self._is_enough():
            if place <= self._found[0][:3]:
                return
            heapq.heapreplace(self._found, self._shown(message, place, key, value))
        elif wanted.newest:
            heapq.heappush(self._found, self._shown(message, place, key, value))
        elif not self._is_enough():
            self._found.append(self._shown(message, place, key, value))

    def _row(self, message: Message, at: int, key: bytes | None, value: bytes | None) -> Row:
        """What a filter sees: nothing of what is masked, nor its size."""
        masks = self._wanted.masks
        headers = masks.headers({name: _text(each) for name, each in _headers(message)})
        size = None if masks else len(key or b"") + len(value or b"")
        return Row(
            masks.applied("key", read_any(key)),
            masks.applied("value", read_any(value)),
            headers,
            at,
            message.offset() or 0,
            message.partition() or 0,
            size,
        )

    def _shown(self, message: Message, place: tuple[int, int, int], key: bytes | None, value: bytes | None) -> Found:
        headers = tuple(
            (name, shown(MASKED, 0, pretty=False) if self._wanted.masks.hides_header(name) else show(each))
            for name, each in _headers(message)
        )
        return Found(*place, self._part("key", key), self._part("value", value), headers)

    def _part(self, part: str, data: bytes | None) -> Shown:
        most = WHOLE_CHARACTERS if self._wanted.whole else SHOWN_CHARACTERS
        if data is None or not self._wanted.masks.hides(part):
            return show(data, most)
        found = read_any(data)
        return shown(
            self._wanted.masks.applied(part, MASKED if found is None else found), most, pretty=self._wanted.whole
        )

    def _progress(self, *, complete: bool = False, problem: str = "") -> Progress:
        records = sorted(self._found, reverse=True) if self._wanted.newest else list(self._found)
        return Progress(records, self._scanned, self._to_scan, complete, problem)


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, _bytes(value)) for name, value in pairs]
