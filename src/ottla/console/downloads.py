"""Files of records: of exactly those that a page shows, or of all that a search would look at."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.console.exporting import writer
from ottla.console.records import Search, search
from ottla.console.scanning import Ranges, Scan, Trouble, consumer_of
from ottla.console.sight import Record

LONGEST_S: Final = 3600.0
GAP: Final = 500
"""Offsets between two records of a page that are read over; beyond that, reading begins anew."""


def download(
    properties: Mapping[str, Any], wanted: Search, kind: str, stop: threading.Event, *, whole: bool
) -> Iterator[bytes]:
    """The pieces of a file. Blocks, in a thread. Raises NoParquet before the first piece, Trouble where it breaks off.

    `whole`: all records that pass, from the ranges' beginnings on; else those that `search` finds, by their places.
    """
    records = _every(properties, wanted, stop) if whole else _found(properties, wanted, stop)
    yield from writer(kind, wanted.columns).pieces(records)


def _every(properties: Mapping[str, Any], wanted: Search, stop: threading.Event) -> Iterator[Record]:
    with consumer_of(properties) as consumer:
        scan = Scan(consumer, wanted.topic, wanted.ranges, stop, LONGEST_S)
        for messages in scan.read(wanted.ranges):
            for record in scan.each(wanted.take(messages)):
                if wanted.test is None or wanted.test(record):
                    yield record


def _found(properties: Mapping[str, Any], wanted: Search, stop: threading.Event) -> Iterator[Record]:
    """The records of a page. What a page keeps of them is cut, so they are read again, one run after another."""
    *_, found = search(properties, replace(wanted, columns=()), stop)
    if found.problem and not found.records:
        raise Trouble(found.problem)
    places = {(each.partition, each.offset) for each in found.records}
    with consumer_of(properties) as consumer:
        for run in runs(places):
            scan = Scan(consumer, wanted.topic, run, stop, LONGEST_S)
            for messages in scan.read(run):
                for record in map(wanted.sight.record, messages):
                    if (record.partition, record.offset) in places:
                        yield record


def runs(places: set[tuple[int, int]]) -> Iterator[Ranges]:
    """Ranges of one partition each that have the places in them, in order, and few others."""
    first: tuple[int, int] | None = None
    last = (-1, -1)
    for place in sorted(places):
        if first is not None and (place[0] != last[0] or place[1] - last[1] > GAP):
            yield {first[0]: (first[1], last[1] + 1)}
            first = None
        first, last = first or place, place
    if first is not None:
        yield {first[0]: (first[1], last[1] + 1)}
