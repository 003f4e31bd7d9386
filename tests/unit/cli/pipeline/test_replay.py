"""Where a replay begins."""

import json

import click
import pytest

from ottla.cli.pipeline.replay import Place, options_for, parse_place, place_of_each, records_from
from ottla.cli.terminal.exits import CommandFailed
from ottla.client.partition import Partition

NOW_MS = 1_800_000_000_000
RANGES = {
    Partition("flights", 0): (100, 200),
    Partition("flights", 1): (0, 150),
    Partition("weather", 0): (0, 9),
}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place()),
        ("flights=beginning", Place("flights")),
        ("2h", Place(time_ms=NOW_MS - 7_200_000)),
        ("flights=2026-01-31T08:00:00Z", Place("flights", time_ms=1_769_846_400_000)),
        ("1700000000000", Place(time_ms=1_700_000_000_000)),
        ("17", Place(offset=17)),
        ("flights=-100", Place("flights", offset=-100)),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["yesterday", "=5", "flights=soon", "12x"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(click.UsageError, match="--from"):
        parse_place(text, NOW_MS)


def test_each_topic_has_its_place() -> None:
    topics = ["flights", "weather"]
    assert place_of_each([Place(time_ms=5), Place("weather", offset=3)], topics) == {
        "flights": Place(time_ms=5),
        "weather": Place("weather", offset=3),
    }
    assert place_of_each([Place(offset=3)], ["flights"]) == {"flights": Place(offset=3)}


@pytest.mark.parametrize(
    ("places", "complaint"),
    [
        ([Place("fligths")], "reads no topic 'fligths'; did you mean 'flights'"),
        ([Place("flights")], "names no start for weather"),
        ([Place(), Place()], "without a topic is given more than once"),
        ([Place("flights"), Place("flights", offset=1), Place()], "more than once for 'flights'"),
        ([Place(offset=7)], r"another place in each topic \(flights, weather\)"),
    ],
)
def test_unclear_places(places: list[Place], complaint: str) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        place_of_each(places, ["flights", "weather"])


@pytest.mark.parametrize(
    ("offset", "offsets"),
    [
        (120, {"0": 120, "1": 120}),
        (170, {"0": 170, "1": 150}),
        (5, {"0": 100, "1": 5}),
        (-20, {"0": 180, "1": 130}),
        (-120, {"0": 100, "1": 30}),
    ],
)
def test_offsets_are_brought_into_each_partition(offset: int, offsets: dict[str, int]) -> None:
    options = options_for(Place(offset=offset), "flights", RANGES)
    assert {name: json.loads(value) for name, value in options.items()} == {"startingOffsets": {"flights": offsets}}


def test_an_offset_past_every_end_is_refused() -> None:
    with pytest.raises(CommandFailed, match="topic 'flights' ends at offset 200: there is no 201"):
        options_for(Place(offset=201), "flights", RANGES)


def test_times_are_found_by_the_source() -> None:
    assert options_for(Place(), "flights", RANGES) == {"startingOffsets": "earliest"}
    assert options_for(Place(time_ms=5), "flights", RANGES)["startingTimestamp"] == "5"


@pytest.mark.parametrize(
    ("place", "records"),
    [
        (Place(), 100 + 150),
        (Place(offset=120), 80 + 30),
        (Place(offset=50), 100 + 100),  # before the first there is
        (Place(offset=-10), 10 + 10),
        (Place(offset=190), 10 + 0),
        (Place(time_ms=NOW_MS), 5 + 0),
    ],
)
def test_records_to_read(place: Place, records: int) -> None:
    flights = {partition: each for partition, each in RANGES.items() if partition.topic == "flights"}
    at_time = {Partition("flights", 0): 195, Partition("flights", 1): 150}
    assert records_from(place, flights, at_time) == records
