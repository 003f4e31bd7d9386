"""The records of a share group that will be delivered again, by their keys: which of them cannot be handled."""

import threading
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ottla.admin import Deliveries, Partition
from ottla.console.scanning import Scan, Trouble, consumer_of
from ottla.console.share_deliveries import again
from ottla.console.sight import Record, Sight
from ottla.console.values import Shown, show

MOST_RECORDS: Final = 500
MOST_WINDOWS: Final = 50
"""Pieces of a partition that lie apart: each is a seek."""
LONGEST_S: Final = 5.0
SHOWN: Final = 200


class KeyRow(NamedTuple):
    """A key: how many of its records will be delivered again, how often the one was that was delivered most, and where
    the first of them is."""

    topic: str
    key: Shown
    records: int
    most_often: int
    partition: int
    offset: int


class ByKey(NamedTuple):
    """The keys, with most records first; `read` of `wanted` records were looked at."""

    rows: list[KeyRow]
    read: int
    wanted: int
    problem: str = ""


class Window(NamedTuple):
    """Records of one partition, delivered so often."""

    first: int
    end: int
    times: int


def windows(deliveries: Mapping[Partition, Sequence[Deliveries]]) -> dict[Partition, list[Window]]:
    """What will be delivered again, the oldest first, within the limits of one page. PURE."""
    found: dict[Partition, list[Window]] = {}
    left, pieces = MOST_RECORDS, MOST_WINDOWS
    for partition, kept in sorted(deliveries.items()):
        for each in again(kept):
            if left <= 0 or pieces <= 0:
                return found
            end = min(each.last_offset + 1, each.first_offset + left)
            found.setdefault(partition, []).append(Window(each.first_offset, end, each.count))
            left -= end - each.first_offset
            pieces -= 1
    return found


def by_key(client: Mapping[str, Any], deliveries: Mapping[Partition, Sequence[Deliveries]], sight: Sight) -> ByKey:
    """Read the records and group them. Blocks for a few seconds, in a thread."""
    wanted = sum(each.last_offset - each.first_offset + 1 for kept in deliveries.values() for each in again(kept))
    keys = _Keys()
    problem = ""
    until = time.monotonic() + LONGEST_S
    try:
        with consumer_of(client) as consumer:
            for partition, asked in windows(deliveries).items():
                for window in asked:
                    ranges = {partition.partition: (window.first, window.end)}
                    left_s = max(until - time.monotonic(), 0.0)
                    for batch in Scan(consumer, partition.topic, ranges, threading.Event(), left_s).read(ranges):
                        for message in batch:
                            keys.add(partition.topic, sight.record(message), window.times)
    except Trouble as trouble:
        problem = str(trouble)
    return ByKey(keys.rows(), keys.read, wanted, problem)


class _Keys:
    """Rows by key, without the records: those may be large."""

    def __init__(self) -> None:
        self.read = 0
        self._rows: dict[tuple[str, bytes | None], KeyRow] = {}

    def add(self, topic: str, record: Record, count: int) -> None:
        self.read += 1
        raw = record.raw_key
        key = topic, None if raw is None else blake2b(raw).digest()
        known = self._rows.get(key)
        if known is None:
            shown = show(record.part("key"), SHOWN)
            self._rows[key] = KeyRow(topic, shown, 1, count, record.partition, record.offset)
        else:
            self._rows[key] = known._replace(records=known.records + 1, most_often=max(known.most_often, count))

    def rows(self) -> list[KeyRow]:
        return sorted(self._rows.values(), key=lambda each: -each.records)
