"""What a run shows of its flows, at its metrics endpoint."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metrics.families import Measurements
from ottla.pipeline import metrics
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.metrics import RunMetrics, measure
from ottla.pipeline.progress import REJECTED, Figures, FlowProgress
from ottla.pipeline.run_store import FAILED, WAITING
from ottla.pipeline.supervised import Supervised

Samples = dict[tuple[str, ...], float]


def values(measured: Measurements) -> Samples:
    return {(family.name, *sample.labels.values()): sample.value for family, samples in measured for sample in samples}


def test_figures_become_series() -> None:
    now = datetime(2026, 1, 1, 0, 10, tzinfo=UTC).timestamp()
    figures = Figures(
        "hourly",
        now,
        records=7,
        batches=2,
        rate=3.5,
        batch_ms=250,
        lag_records=9,
        state_rows=4,
        state_bytes=512,
        late=1,
    )
    figures.watermark = "2026-01-01T00:00:00.000Z"
    figures.rejected, figures.rejected_by = 5, {"has carrier": 3}
    figures.expectations = {"early": {"is early": {"otherwise": "warn", "rows": 2}}}
    to = Measurements()
    measure(figures, now, "orders", to)
    found = values(to)
    flow = ("orders", "hourly")
    assert found["ottla_pipeline_records_total", *flow] == 7
    assert found["ottla_pipeline_batch_duration_seconds", *flow] == 0.25
    assert found["ottla_pipeline_watermark_delay_seconds", *flow] == 600
    assert found["ottla_pipeline_dead_letters_total", *flow, "has carrier"] == 3
    assert found["ottla_pipeline_dead_letters_total", *flow, "decoding"] == 2
    assert found["ottla_pipeline_broken_expectations_total", *flow, "early", "is early", "warn"] == 2
    assert ("ottla_pipeline_lag_seconds", *flow) not in found, "it is not known"


def test_dead_letters_add_up_by_the_check_that_they_failed() -> None:
    flow = FlowProgress(Figures("rows.dead-letters", 0.0))
    for _ in range(2):
        flow.on_batch({"numInputRows": 9, "observedMetrics": {REJECTED: {REJECTED: 4, "has carrier": 3, "b": 0}}}, 1.0)
    assert (flow.figures.rejected, flow.figures.rejected_by) == (8, {"has carrier": 6})
    later = FlowProgress(Figures("rows.dead-letters", 0.0))
    later.go_on_from(flow.figures)
    assert later.figures.rejected_by == {"has carrier": 6}


def supervised(name: str) -> Supervised:
    nothing: Any = None
    planned: Any = SimpleNamespace(name=name, start=lambda *_: nothing)
    return Supervised(planned, nothing, Path("/checkpoint"))


def test_health_names_what_has_failed_and_what_waits() -> None:
    run = RunMetrics("orders")
    assert run.health().reasons == ["the run is starting: Spark starts, and its queries are planned"]
    one, other, third = map(supervised, ("one", "other", "third"))
    run.record = SimpleNamespace(error=None, started_at=5.0)  # type: ignore[assignment]
    run.queries = [one, other, third]
    assert run.health().is_ready
    other.state, other.error = WAITING, "the store is away"
    assert run.health() == ([], ["flow other waits for its next try: the store is away"])
    third.state, third.error = FAILED, "no such column"
    assert run.health().reasons == ["flow third has failed: no such column"]
    third.start()
    third.start()
    to = Measurements()
    run.gather(to)
    found = values(to)
    assert found["ottla_pipeline_restarts_total", "orders", "third"] == 1
    assert found["ottla_pipeline_flow_state", "orders", "other", WAITING] == 1
    assert sum(found["ottla_pipeline_flow_state", "orders", "one", state] for state in metrics.STATES) == 1


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(PipelineError, match="has to be http://host:port"), RunMetrics("r").serving("9644"):
        pass
