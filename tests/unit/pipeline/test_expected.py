"""The engine that checks the job is itself checked, by counting in plain Python."""

from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.pipeline.demo import dataset, expected
from ottla.pipeline.demo.expected import Only


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return dataset.read_flights(0.01)


def counted(flights: pa.Table, **wanted: str | int) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in flights.to_pylist():
        if row["dep_time"] is None or any(row[name] != value for name, value in wanted.items()):
            continue
        day = row["time_hour"] + timedelta(minutes=row["minute"]) - timedelta(hours=5)
        groups[f"{day:%Y-%m-%d}/{row['carrier']}/{row['origin']}"].append(row)
    figures = {}
    for key, rows in groups.items():
        arrivals = [row["arr_delay"] for row in rows if row["arr_delay"] is not None]
        figures[key] = {
            "flights": len(rows),
            "late": sum(delay >= 15 for delay in arrivals),
            "dep_delay_minutes": sum(row["dep_delay"] for row in rows),
            "arr_delay_minutes": sum(arrivals) if arrivals else None,
            "worst_minutes": max(arrivals, default=None),
        }
    return figures


def named(figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    airlines = {row["carrier"]: row["name"] for row in dataset.read_reference("airlines").to_pylist()}
    airports = {row["faa"]: row["name"] for row in dataset.read_reference("airports").to_pylist()}
    rows = {}
    for key, row in figures.items():
        day, carrier, origin = key.split("/")
        names = {"airline": airlines[carrier], "origin_airport": airports[origin]}
        rows[key] = row | names | {"day": day, "carrier": carrier, "origin": origin}
    return rows


def test_figures_are_those_one_counts(flights: pa.Table) -> None:
    assert expected.delays(expected.flown(flights)) == counted(flights)


def test_a_filter_is_kept_to(flights: pa.Table) -> None:
    only = Only(carrier="UA", dest="ORD", month=1)
    assert expected.delays(expected.flown(flights, only)) == counted(flights, carrier="UA", dest="ORD", month=1)
    assert str(only) == "carrier UA, dest ORD, month 1"
    assert only.arguments() == "--carrier UA --dest ORD --month 1"


def test_nothing_differs_from_itself_and_everything_else_is_named(flights: pa.Table) -> None:
    wanted = counted(flights)
    right = named(wanted)
    assert expected.compare_delays(wanted, right) == []

    key = next(iter(sorted(right)))
    missing = {other: row for other, row in right.items() if other != key}
    assert expected.compare_delays(wanted, missing) == [f"{key}: missing"]
    assert expected.compare_delays(wanted, right | {"2013-01-01/UA/XXX": {}}) == ["2013-01-01/UA/XXX: unexpected"]
    flights_there = right[key]["flights"]
    one_more = right | {key: right[key] | {"flights": flights_there + 1}}
    assert expected.compare_delays(wanted, one_more) == [
        f"{key}: flights is {flights_there + 1}, should be {flights_there}"
    ]
    nameless = right | {key: right[key] | {"airline": None}}
    assert len(expected.compare_delays(wanted, nameless)) == 1


def test_parquet_that_lacks_a_flight_is_noticed(flights: pa.Table, tmp_path: Path) -> None:
    flown = expected.flown(flights)
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
            for row in flown.to_pylist()
        ]
    )
    parquet.write_table(written, tmp_path / "part.parquet")
    assert expected.compare_history(flown, tmp_path) == []

    parquet.write_table(written.slice(1), tmp_path / "part.parquet")
    count = flown.num_rows
    assert f"Parquet: flights {count - 1:,}, should be {count:,}" in expected.compare_history(flown, tmp_path)


def test_totals_add_up(flights: pa.Table) -> None:
    sums = expected.totals(counted(flights))
    assert sums["flights"] == expected.flown(flights).num_rows
