"""Records of a topic for a page: the newest, the oldest, from an offset or a time; all, or what a filter lets pass.

    oldest, offset, time   read forward from there
    newest                 read the last offsets of each partition; with a filter, go back until enough is found
    latest per key         go back to the beginning, since every key is counted

Records are decoded as late as possible, and not at all where their bytes show that the filter refuses them.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from ottla.console.collecting import Collector, Columns, First, Found, LatestPerKey, Newest
from ottla.console.expressions import Test
from ottla.console.scanning import Ranges, Scan, Trouble, consumer_of
from ottla.console.sight import Record, Sight
from ottla.console.skipping import Possible
from ottla.console.values import SHOWN_CHARACTERS, WHOLE_CHARACTERS

MOST_RECORDS: Final = 500
WINDOW: Final = 20_000
"""Offsets of a partition that are looked at together, backward from its end."""
LATEST_WINDOW: Final = 10_000
"""... of all partitions, where the records of a window are held."""
LONGEST_S: Final = 120.0
REPORT_EVERY_S: Final = 0.3
REPORT_RARELY_S: Final = 2.0
"""After a while: each report has all that was found so far."""
OFTEN_S: Final = 3.0


class Progress(NamedTuple):
    """How far a search is."""

    records: list[Found]
    """The records found so far, in the order in which they are shown."""
    scanned: int
    to_scan: int
    """Offsets, of which some may have no record."""
    is_complete: bool
    problem: str = ""
    keys: int | None = None
    """How many keys there are, where the latest record of each is looked for."""


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for, and how its viewer sees it."""

    topic: str
    ranges: Ranges
    order: str
    """forward, newest or latest."""
    most: int
    test: Test | None = None
    possible: Possible | None = None
    """What the test implies of the bytes; see `skipping`."""
    columns: Columns = ()
    whole: bool = False
    """Show keys and values whole."""
    sight: Sight = field(default_factory=Sight)

    def take(self, messages: list[Message]) -> Iterator[Record]:
        """The records that may pass the test, not yet decoded."""
        possible = None if self.sight.is_masked else self.possible
        if possible is not None:
            messages = [each for each in messages if possible(each.key(), each.value())]
        return map(self.sight.record, messages)


def search(properties: Mapping[str, Any], wanted: Search, stop: threading.Event) -> Iterator[Progress]:
    """Read, and report again and again; the last report is complete, or has a problem. Blocks, in a thread."""
    kept = _collector(wanted)
    try:
        with consumer_of(properties) as consumer:
            scan = Scan(consumer, wanted.topic, wanted.ranges, stop, LONGEST_S)
            problem = ""
            try:
                yield from _reports(scan, wanted, kept, stop)
            except Trouble as trouble:
                problem = str(trouble)
            yield _progress(scan, kept, complete=True, problem=problem or kept.problem)
    except Trouble as trouble:
        yield Progress([], 0, 0, True, str(trouble))


def _reports(scan: Scan, wanted: Search, kept: Collector, stop: threading.Event) -> Iterator[Progress]:
    began = reported = time.monotonic()
    skips = wanted.order != "latest"  # a record that a filter refuses may be the latest of its key
    for window in _windows(wanted):
        for messages in scan.read(window):
            for record in scan.each(wanted.take(messages) if skips else map(wanted.sight.record, messages)):
                kept.offer(record)
            if kept.is_full:
                return
            now = time.monotonic()
            if now - reported > (REPORT_EVERY_S if now - began < OFTEN_S else REPORT_RARELY_S):
                yield _progress(scan, kept)
                reported = now
        kept.end_window()
        if kept.is_complete or stop.is_set():
            return


def _windows(wanted: Search) -> Iterator[Ranges]:
    """Ranges that are read together. The newest records are known only when each partition was looked at."""
    if wanted.order == "forward":
        yield wanted.ranges
        return
    following = max(LATEST_WINDOW // max(len(wanted.ranges), 1), 1) if wanted.order == "latest" else WINDOW
    width = 2 * wanted.most if wanted.order == "newest" and wanted.test is None else following
    left = dict(wanted.ranges)
    while left := {number: window for number, window in left.items() if window[0] < window[1]}:
        yield {number: (max(first, end - width), end) for number, (first, end) in left.items()}
        left = {number: (first, max(first, end - width)) for number, (first, end) in left.items()}
        width = following


def _collector(wanted: Search) -> Collector:
    most = WHOLE_CHARACTERS if wanted.whole else SHOWN_CHARACTERS

    def make(record: Record) -> Found:
        return Found.of(record, wanted.columns, most)

    kinds: Mapping[str, type[Collector]] = {"forward": First, "newest": Newest, "latest": LatestPerKey}
    return kinds[wanted.order](wanted.most, wanted.test, make)


def _progress(scan: Scan, kept: Collector, *, complete: bool = False, problem: str = "") -> Progress:
    return Progress(kept.records(), scan.scanned, scan.to_scan, complete, problem, kept.keys)
