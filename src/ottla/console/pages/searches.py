"""The query of an address, as a search: where to begin, what to look for, which columns to show.

from       newest, oldest, offset, time, latest (of each key) or live      offset, time   where to begin
partition  one, or all       most   how many records                       filter, columns   expressions
look, for  key, header or value, and its text;  header   its name          keys   a partitioner, or all
at         0-100.1-90: the ends of the partitions, so that the address shows the same again
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from confluent_kafka.admin import OffsetSpec
from starlette.exceptions import HTTPException

from ottla.client.partition import Partition
from ottla.console.cluster import ClusterView, PartitionRow
from ottla.console.expressions import ExpressionProblem, compile_columns, compile_filter
from ottla.console.lookups import PARTITIONERS, Lookup, LookupProblem, both, both_possible, lookup, partition_of
from ottla.console.pages.base import number_of, time_of
from ottla.console.records import MOST_RECORDS, Search
from ottla.console.scanning import Ranges
from ottla.console.sight import Sight
from ottla.console.skipping import possible

MOST_PINNED: Final = 200
"""Partitions whose ends an address names."""
_PIN: Final = re.compile(r"(\d{1,9})-(\d{1,18})")
_ORDERS: Final = {"newest": "newest", "latest": "latest"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A search, and what its page explains about it."""

    search: Search
    note: str = ""
    """Where it looks, if not everywhere."""
    everywhere: str = ""
    """The query that looks everywhere."""
    pinned: str = ""
    """The query that shows the same again."""


async def asked(view: ClusterView, topic: str, query: Mapping[str, str], sight: Sight) -> Asked:
    """The search that a query describes. Raises HTTPException for one that makes no sense."""
    try:
        wanted, found = _tests(topic, query, sight)
    except (ExpressionProblem, LookupProblem) as problem:
        raise HTTPException(400, str(problem)) from problem
    partitions = await view.partitions(topic)
    if not partitions:
        raise HTTPException(404, f"There is no topic {topic!r}.")
    ranges = _ends(_ranges(partitions, query), query)
    note = everywhere = ""
    partitioner = query.get("keys", "murmur2")
    if found is not None and found.key is not None and partitioner in PARTITIONERS and "partition" not in query:
        number = partition_of(found.key, len(partitions), partitioner)
        ranges = {each: held for each, held in ranges.items() if each == number}
        note = (
            f"Only partition {number} is looked at, where {PARTITIONERS[partitioner][0]} puts this key among "
            f"{len(partitions)} partitions."
        )
        everywhere = urlencode({**query, "keys": "all"})
    pinned = urlencode({**query, "at": _pins(ranges)}) if len(ranges) <= MOST_PINNED else ""
    ranges = await _begun(view, topic, ranges, query)
    return Asked(replace(wanted, ranges=ranges), note, everywhere, pinned)


def problem_of(topic: str, query: Mapping[str, str]) -> str:
    """Why the expressions of a query make no sense, if they do not."""
    try:
        _tests(topic, query, Sight())
    except (ExpressionProblem, LookupProblem) as problem:
        return str(problem)
    return ""


def _tests(topic: str, query: Mapping[str, str], sight: Sight) -> tuple[Search, Lookup | None]:
    text = query.get("filter", "")
    test = compile_filter(text) if text else None
    may = possible(text) if text else None
    found = None
    if query.get("look") and (query.get("for") or query.get("header")):
        found = lookup(query["look"], query.get("for", ""), query.get("header", ""))
        test, may = both(found.test, test), both_possible(found.possible, may)
    columns = compile_columns(query["columns"]) if "columns" in query else ()
    most = max(min(number_of(query, "most", 100), MOST_RECORDS), 1)
    order = _ORDERS.get(query.get("from", "newest"), "forward")
    return Search(topic, {}, order, most, test, may, columns, sight=sight), found


def _ranges(partitions: list[PartitionRow], query: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    chosen = query.get("partition", "")
    return {
        each.number: (each.first, each.end)
        for each in partitions
        if each.first is not None and each.end is not None and chosen in ("", str(each.number))
    }


def _ends(ranges: Ranges, query: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """The ranges up to the ends in the address; partitions that it does not name are newer than it."""
    if "at" not in query:
        return dict(ranges)
    pins = dict(_pinned(each) for each in query["at"].split(".")[:MOST_PINNED])
    return {number: (first, min(end, pins[number])) for number, (first, end) in ranges.items() if number in pins}


def _pinned(text: str) -> tuple[int, int]:
    found = _PIN.fullmatch(text)
    if found is None:
        raise HTTPException(400, f"at={text} is not PARTITION-OFFSET.")
    return int(found[1]), int(found[2])


def _pins(ranges: Ranges) -> str:
    return ".".join(f"{number}-{end}" for number, (_, end) in sorted(ranges.items()))


async def _begun(
    view: ClusterView, topic: str, ranges: dict[int, tuple[int, int]], query: Mapping[str, str]
) -> dict[int, tuple[int, int]]:
    """The ranges from where the query begins."""
    start = query.get("from", "newest")
    if start == "offset":
        at = number_of(query, "offset")
        return {number: (max(first, at), end) for number, (first, end) in ranges.items() if at < end}
    if start == "time":
        at_ms = time_of(query.get("time", ""))
        held = [Partition(topic, number) for number in ranges]
        found = await view.offsets(held, OffsetSpec.for_timestamp(at_ms))
        return {
            number: (found[partition], end)
            for number, (_, end) in ranges.items()
            if 0 <= found.get(partition := Partition(topic, number), -1) < end
        }
    return ranges
