"""Figures of flows."""

import pytest

from ottla.cli.pipeline.tables import columns_that_fit, columns_with_content
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_rows import flow_rows
from ottla.pipeline.run_store import FAILED, LOST, RUNNING, STOPPED, WAITING, FlowRecord, RunRecord


@pytest.mark.parametrize(
    ("of_run", "state", "rate", "lag"),
    [
        (RUNNING, RUNNING, 12, 7),
        (RUNNING, WAITING, 12, 7),
        (RUNNING, FAILED, None, 7),  # the others go on, and it falls behind
        (FAILED, FAILED, None, None),
        (RUNNING, STOPPED, None, None),
        (LOST, LOST, None, None),
    ],
)
def test_what_does_not_run_has_no_rate_and_no_lag(of_run: str, state: str, rate: int | None, lag: int | None) -> None:
    flow = FlowRecord(["topic orders"], "topic copies", "append", "1 second", "/c", state)
    record = RunRecord(
        "orders", "orders", "/o.py", "f", "here:9092", "local[2]", 1, 1.0, of_run, flows={"copies": flow}
    )

    (row,) = flow_rows(record, {"copies": Figures("copies", 5.0, records=100, rate=12.3, lag_records=7)})

    assert (row["records"], row["rate"], row["lag_records"]) == (100, rate, lag)


def test_a_narrow_terminal_shows_what_matters_most() -> None:
    row = {"flow": "copies", "state": "running", "records": 336_776, "rate": 12_346, "batch_ms": 99, "rejected": 0}

    assert [each.key for each in columns_with_content([row])] == ["flow", "state", "records", "rate", "batch_ms"]
    assert [each.key for each in columns_that_fit([row], 80)] == ["flow", "state", "records", "rate", "batch_ms"]
    assert [each.key for each in columns_that_fit([row], 40)] == ["flow", "state", "records"]
    assert [each.key for each in columns_that_fit([{**row, "flow": "x" * 30}], 40)] == ["flow"]
