"""Flows and their figures as rows of a table."""

import time
from collections.abc import Sequence
from typing import Final

from ottla.cli.terminal.output import Column, Row, cell, columns_of
from ottla.pipeline.run_rows import duration

FLOW_COLUMNS: Final = columns_of(
    "flow state records# rate=RECORDS/S# lag_records=LAG# lag=BEHIND batch_ms# state_rows#",
    "state_bytes# watermark late# rejected# corrected#",
)
_BY_IMPORTANCE: Final = (
    *("flow", "state", "records", "rate", "lag_records", "lag", "late", "corrected", "rejected"),
    *("watermark", "batch_ms", "state_rows", "state_bytes"),
)
_GAP: Final = 3


def columns_with_content(rows: Sequence[Row]) -> list[Column]:
    """Those columns of `FLOW_COLUMNS` that say something of any flow."""
    return [column for column in FLOW_COLUMNS if any(row.get(column.key) for row in rows)]


def columns_that_fit(rows: Sequence[Row], width: int) -> list[Column]:
    """The most important of these columns that fit beside each other into `width` characters."""
    fitting: set[str] = set()
    left = width
    there = {column.key: column for column in columns_with_content(rows)}
    for key in _BY_IMPORTANCE:
        if key in there:
            column = there[key]
            texts = (cell(row.get(key), separate_thousands=column.figures) for row in rows)
            left -= max(map(len, (column.title, *texts))) + _GAP
            if left < 0:
                break
            fitting.add(key)
    return [column for key, column in there.items() if key in fitting]


def ago(moment: float | None) -> str | None:
    """A time as how long ago it was, for a person."""
    return None if moment is None else f"{duration(max(0.0, time.time() - moment))} ago"
