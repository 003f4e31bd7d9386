"""Flows and their figures as rows of a table."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from ottla.cli.terminal.output import Column, Row, cell, columns_of
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FAILED, RUNNING, WAITING, RunRecord

FLOW_COLUMNS: Final = columns_of(
    "flow state records# rate=RECORDS/S# lag_records=LAG# lag=BEHIND batch_ms# state_rows#",
    "state_bytes# watermark late# rejected# corrected#",
)
_BY_IMPORTANCE: Final = (
    *("flow", "state", "records", "rate", "lag_records", "lag", "late", "corrected", "rejected"),
    *("watermark", "batch_ms", "state_rows", "state_bytes"),
)
_GAP: Final = 3
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def flow_rows(record: RunRecord, figures: Mapping[str, Figures]) -> list[Row]:
    """Every flow of a run with its figures, as far as they are known."""
    rows: list[Row] = []
    for name, flow in record.flows.items():
        known = figures.get(name) or Figures(name, record.started_at)
        row: dict[str, object] = {**asdict(known), "state": flow.state, "lag": behind(known)}
        row["rate"] = round(known.rate)
        if flow.state not in (RUNNING, WAITING):
            row["rate"] = None
            if flow.state != FAILED or record.state != RUNNING:  # of a flow that is stopped, nobody asks how far it is
                row |= {"lag_records": None, "lag": None}
        rows.append(row)
    return rows


def last_error(record: RunRecord) -> str | None:
    """The run's, else that of its first flow that has one."""
    of_flows = (f"{name}: {flow.error}" for name, flow in record.flows.items() if flow.error)
    return record.error or next(of_flows, None)


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


def behind(figures: Figures) -> str | None:
    """How far behind in time, for a person: `0 s`, `> 12 s`, `3 min`."""
    if figures.lag_s is None:
        return None
    return ("> " if figures.lag_s_at_least else "") + duration(figures.lag_s)


def duration(seconds: float) -> str:
    """`4 s`, `3 min`, `2 h`, `5 d`."""
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def utc(moment: float | None) -> str | None:
    """A time for a program that reads columns."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def ago(moment: float | None) -> str | None:
    """A time as how long ago it was, for a person."""
    return None if moment is None else f"{duration(max(0.0, time.time() - moment))} ago"
