"""The query of an address as a search."""

import asyncio
from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.exceptions import HTTPException

from ottla.client.partition import Partition
from ottla.console.cluster import PartitionRow
from ottla.console.lookups import partition_of
from ottla.console.pages.searches import Asked, asked, problem_of
from ottla.console.sight import Sight


class View:
    """A topic of three partitions."""

    async def partitions(self, topic: str) -> list[PartitionRow]:
        if topic != "orders":
            return []
        return [PartitionRow(number, 1, (1,), (1,), 10, 100 + number, 1) for number in range(3)]

    async def offsets(self, partitions: list[Partition], spec: Any) -> dict[Partition, int]:
        return {Partition("orders", 0): 50, Partition("orders", 1): -1}


def ask(topic: str = "orders", **query: str) -> Asked:
    given = {"from": "newest"} | {name.rstrip("_"): text for name, text in query.items()}
    view: Any = View()
    return asyncio.run(asked(view, topic, given, Sight()))


ALL = {0: (10, 100), 1: (10, 101), 2: (10, 102)}


def test_where_a_search_begins() -> None:
    assert ask().search.ranges == ALL
    assert ask(partition="1").search.ranges == {1: (10, 101)}
    assert ask(from_="offset", offset="101").search.ranges == {2: (101, 102)}
    assert ask(from_="time", time="2026-01-01").search.ranges == {0: (50, 100)}
    assert [ask(from_=start).search.order for start in ("newest", "latest", "oldest")] == [
        "newest",
        "latest",
        "forward",
    ]


def test_a_key_is_looked_for_where_it_is_placed() -> None:
    found = ask(look="key", for_="alice")
    number = partition_of(b"alice", 3, "murmur2")
    assert found.search.ranges == {number: ALL[number]}
    assert f"Only partition {number}" in found.note
    assert parse_qs(found.everywhere)["keys"] == ["all"]
    assert ask(look="key", for_="alice", keys="all").search.ranges == ALL
    assert ask(look="key", for_="alice", keys="crc32").search.ranges.keys() == {partition_of(b"alice", 3, "crc32")}
    assert ask(look="key", for_='{"a": 1}').search.ranges == ALL
    assert ask(look="value", for_="alice").note == ""


def test_a_pinned_address_shows_the_same_when_more_has_come() -> None:
    pinned = parse_qs(ask(partition="1").pinned)["at"][0]
    assert pinned == "1-101"
    assert ask(at="0-40.1-200").search.ranges == {0: (10, 40), 1: (10, 101)}


@pytest.mark.parametrize(
    "query",
    [
        {"filter": "value +"},
        {"columns": "value.a, open('x')"},
        {"columns": ",".join(["key"] * 30)},
        {"look": "key", "for_": "0xzz"},
        {"at": "x"},
        {"most": "many"},
        {"from_": "time", "time": "noon"},
    ],
)
def test_what_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(HTTPException) as refused:
        ask(**query)
    assert refused.value.status_code == 400


def test_problems_of_expressions_are_known_before_anything_is_read() -> None:
    assert "not an expression" in problem_of("t", {"filter": "value +"})
    assert problem_of("t", {"filter": "value.a"}) == ""
    with pytest.raises(HTTPException, match="no topic"):
        ask("nowhere")
