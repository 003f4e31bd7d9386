"""Least and greatest values of a file's columns, from its footer, as Delta's log keeps them for skipping files.

Source: Delta transaction log protocol, "Per-file Statistics".
"""

import datetime as dt
from typing import Any, Final

import pyarrow.parquet as pq

_MOST_TEXT: Final = 64
"""Characters; longer texts say little about a file, and the log is read whole."""


def column_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """`numRecords`, and `minValues`, `maxValues`, `nullCount` of the columns that have them."""
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name:
            continue  # a field in a list, a map or a struct
        chunks = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if not chunks or not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        found["nullCount"][name] = sum(chunk.null_count for chunk in chunks)
        limits = [chunk for chunk in chunks if chunk.num_values]
        if not limits or not all(chunk.has_min_max for chunk in limits):
            continue
        least, greatest = min(chunk.min for chunk in limits), max(chunk.max for chunk in limits)
        if _is_told(least) and _is_told(greatest):
            found["minValues"][name], found["maxValues"][name] = _as_json(least), _as_json(greatest)
    return {"numRecords": footer.num_rows, **found}


def _is_told(value: Any) -> bool:
    # not floats: a NaN is in no footer, and greater than all
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT
    return isinstance(value, (int, dt.date)) and not isinstance(value, bool)


def _as_json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
