"""The flows of a run with their figures, as rows of a table: for the command line and the console. PURE."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from ottla.pipeline.progress import WAITED_ROWS, Figures
from ottla.pipeline.run_store import FAILED, RUNNING, WAITING, RunRecord

_LOOKUPS: Final = {
    "absent": "found no row",
    "too old": "came before the history begins",
    "ahead": "were ahead of the clock",
    "no time": "had no time",
    WAITED_ROWS: "waited until their time was known",
}
"""What may become of a row that is joined as of its time, but for a row that is found."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def flow_rows(record: RunRecord, figures: Mapping[str, Figures]) -> list[dict[str, Any]]:
    """Every flow of a run with its figures, as far as they are known."""
    rows: list[dict[str, Any]] = []
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


def remarks(record: RunRecord, figures: Mapping[str, Figures], late_changes: Mapping[str, int]) -> Iterator[str]:
    """What there is to say of the flows beside their figures, a sentence each. `late_changes`: by topic."""
    for flow, about in record.flows.items():
        if about.error:
            yield f"{flow}: {about.error}"
        if flow in figures:
            yield from _remarks(flow, figures[flow])
    for topic, changes in late_changes.items():
        yield f"history {topic}: {changes:,} changes came too late; rows of their time may have the version before"


def _remarks(flow: str, figures: Figures) -> Iterator[str]:
    for view, expectations in figures.expectations.items():
        for name, found in expectations.items():
            if found["rows"]:
                yield f"{flow}: {found['rows']:,} rows of {view} break {name!r} ({found['otherwise']})"
    for history, counts in figures.lookups.items():
        said = [f"{counts[status]:,} {what}" for status, what in _LOOKUPS.items() if counts.get(status)]
        if said:
            yield f"{flow}: of the rows joined with {history}, {', '.join(said)}"
    for given, since in figures.idle_inputs().items():
        when = "yet" if since is None else f"since {utc(since)}"
        yield f"{flow}: nothing from {given} {when}; a watermark on it holds back that of the flow"
    for upstream in figures.held_back_by:
        yield f"{flow}: its watermark waits for that of flow {upstream}"


def utc(moment: float | None) -> str | None:
    """A time for a program that reads columns."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
