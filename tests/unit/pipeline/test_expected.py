"""The engine that checks the job is itself checked, by counting in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.pipeline.demo import dataset, expected
from ottla.pipeline.demo.dataset import Fault
from ottla.pipeline.demo.expected import Expected, Only


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return dataset.read_flights(0.02)


def flown(flights: pa.Table, **wanted: str | int) -> Iterator[dict[str, Any]]:
    """Those that departed and were not spoilt, with the rain of their hour."""
    rain = {(row["origin"], row["time_hour"]): row["precip"] for row in dataset.read_reference("weather").to_pylist()}
    for number, row in enumerate(flights.to_pylist()):
        if (
            row["dep_time"] is not None
            and dataset.fault(number) is None
            and all(row[name] == value for name, value in wanted.items())
        ):
            place = (row["origin"], row["time_hour"])
            yield row | {"wet": (rain.get(place) or 0) > 0, "precip": rain.get(place), "has_weather": place in rain}


def counted(flights: pa.Table, **wanted: str | int) -> dict[str, dict[str, Any]]:
    airlines = {row["carrier"]: row["name"] for row in dataset.read_reference("airlines").to_pylist()}
    airports = {row["faa"]: row["name"] for row in dataset.read_reference("airports").to_pylist()}
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in flown(flights, **wanted):
        day = row["time_hour"] + timedelta(minutes=row["minute"]) - timedelta(hours=5)
        groups[f"{day:%Y-%m-%d}", row["carrier"], row["origin"]].append(row)
    figures = {}
    for (day, carrier, origin), rows in groups.items():
        arrivals = [row["arr_delay"] for row in rows if row["arr_delay"] is not None]
        figures[f"{day}/{carrier}/{origin}"] = {
            "date": day,
            "carrier": carrier,
            "airline": airlines[carrier],
            "origin": origin,
            "origin_airport": airports[origin],
            "flights": len(rows),
            "late": sum(delay >= 15 for delay in arrivals),
            "in_the_wet": sum(row["wet"] for row in rows),
            "dep_delay_minutes": sum(row["dep_delay"] for row in rows),
            "arr_delay_minutes": sum(arrivals) if arrivals else None,
            "worst_minutes": max(arrivals, default=None),
        }
    return figures


def test_figures_are_those_one_counts(flights: pa.Table) -> None:
    rows = list(flown(flights))
    found = Expected(flights)
    assert found.delays() == counted(flights)
    assert found.alerts(180) == sum(row["dep_delay"] >= 180 for row in rows) > 0
    assert found.totals() == {
        "flights": len(rows),
        "late": sum(row["arr_delay"] is not None and row["arr_delay"] >= 15 for row in rows),
        "arr_delay_minutes": sum(row["arr_delay"] or 0 for row in rows),
        "with_weather": sum(row["has_weather"] for row in rows),
    }
    by_hour = Counter((row["hour"], row["wet"]) for row in rows)
    assert {(row.hour, row.wet): row.flights for row in found.hours()} == by_hour
    assert sum(row.minutes for row in found.hours()) == sum(row["dep_delay"] for row in rows)


def test_what_was_spoilt_is_counted_by_its_fault(flights: pa.Table) -> None:
    rejected = Expected(flights).rejected
    assert rejected.keys() == set(Fault)
    assert sum(rejected.values()) == pytest.approx(flights.num_rows / dataset.SPOILT_EVERY, abs=1)


def test_a_filter_is_kept_to(flights: pa.Table) -> None:
    only = Only(carrier="UA", dest="ORD", month=1)
    assert Expected(flights, only).delays() == counted(flights, carrier="UA", dest="ORD", month=1)
    assert str(only) == "carrier UA, dest ORD, month 1"
    assert only.arguments() == "--carrier UA --dest ORD --month 1"


def test_nothing_differs_from_itself_and_everything_else_is_named(flights: pa.Table) -> None:
    wanted = counted(flights)
    assert expected.compare_delays(wanted, wanted) == []

    key = next(iter(sorted(wanted)))
    missing = {other: row for other, row in wanted.items() if other != key}
    assert expected.compare_delays(wanted, missing) == [f"{key}: missing"]
    assert expected.compare_delays(wanted, wanted | {"2013-01-01/UA/XXX": {}}) == ["2013-01-01/UA/XXX: unexpected"]
    there = wanted[key]["flights"]
    one_more = wanted | {key: wanted[key] | {"flights": there + 1}}
    assert expected.compare_delays(wanted, one_more) == [f"{key}: flights is {there + 1}, should be {there}"]
    nameless = wanted | {key: wanted[key] | {"airline": None}}
    assert len(expected.compare_delays(wanted, nameless)) == 1


def test_counts_by_kind_are_compared() -> None:
    assert expected.compare_counts("letters", {"a": 2}, ["a", "a"]) == []
    assert expected.compare_counts("letters", {"a": 2}, ["a", "b"]) == [
        "letters: 1 of 'a', should be 2",
        "letters: 1 of 'b', should be 0",
    ]


def test_parquet_that_lacks_a_flight_is_noticed(flights: pa.Table, tmp_path: Path) -> None:
    planes = set(dataset.read_reference("planes")["tailnum"].to_pylist())
    airports = {row["faa"]: row["name"] for row in dataset.read_reference("airports").to_pylist()}
    written = pa.Table.from_pylist(
        [
            row
            | {
                "manufacturer": "X" if row["tailnum"] in planes else None,
                "dest_airport": airports.get(row["dest"], row["dest"]),
                "airline": "X",
            }
            for row in flown(flights)
        ]
    )
    parquet.write_table(written, tmp_path / "part.parquet")
    found = Expected(flights)
    assert found.compare_history(tmp_path) == []

    parquet.write_table(written.slice(1), tmp_path / "part.parquet")
    count = written.num_rows
    assert f"Parquet: flights is {count - 1:,}, should be {count:,}" in found.compare_history(tmp_path)


def test_totals_add_up(flights: pa.Table) -> None:
    assert expected.totals(counted(flights))["flights"] == sum(1 for _ in flown(flights))
