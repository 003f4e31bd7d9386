"""The metrics and the health of a run (`--metrics-listeners`), from the figures that its watch keeps."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Final

from ottla.errors import InvalidConfig, sentence
from ottla.metrics.families import Family, Measurements, counter, gauge
from ottla.metrics.health import Health
from ottla.metrics.process import FAMILIES as _OF_PROCESSES
from ottla.metrics.process import serving_metrics
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FAILED, LEFT_OUT, RUNNING, STOPPED, WAITING, RunRecord
from ottla.pipeline.supervised import Supervised

_FLOW: Final = ("run", "flow")
STATE: Final = gauge("ottla_pipeline_flow_state", "", "1 for the state of a flow, else 0.", *_FLOW, "state")
RECORDS: Final = counter("ottla_pipeline_records_total", "records", "Records read, since the run first began.", *_FLOW)
BATCHES: Final = counter("ottla_pipeline_batches_total", "micro-batches", "Micro-batches with records.", *_FLOW)
RATE: Final = gauge("ottla_pipeline_records_per_second", "records per second", "Over the last ten seconds.", *_FLOW)
BATCH_DURATION: Final = gauge(
    "ottla_pipeline_batch_duration_seconds", "seconds", "Time that the last micro-batch took.", *_FLOW
)
LAG: Final = gauge("ottla_pipeline_lag_records", "records", "Records of its topics that are not read yet.", *_FLOW)
LAG_SECONDS: Final = gauge(
    "ottla_pipeline_lag_seconds", "seconds", "How long ago its topics ended where the flow is now.", *_FLOW
)
WATERMARK_DELAY: Final = gauge(
    "ottla_pipeline_watermark_delay_seconds", "seconds", "Time between the watermark and now.", *_FLOW
)
STATE_ROWS: Final = gauge("ottla_pipeline_state_rows", "rows", "Rows of state.", *_FLOW)
STATE_BYTES: Final = gauge("ottla_pipeline_state_bytes", "bytes", "Memory of the state.", *_FLOW)
LATE: Final = counter("ottla_pipeline_late_rows_total", "rows", "Rows behind the watermark.", *_FLOW)
CORRECTED: Final = counter(
    "ottla_pipeline_corrected_rows_total", "rows", "Rows of the output that late rows were merged into.", *_FLOW
)
DEAD_LETTERS: Final = counter(
    "ottla_pipeline_dead_letters_total",
    "rows",
    "Rejected rows. `reason` is the check that they failed, or `decoding`.",
    *_FLOW,
    "reason",
)
EXPECTATIONS: Final = counter(
    "ottla_pipeline_broken_expectations_total",
    "rows",
    "Rows that broke an expectation. `otherwise` is what became of them.",
    *_FLOW,
    "view",
    "expectation",
    "otherwise",
)
RESTARTS: Final = counter(
    "ottla_pipeline_restarts_total", "starts", "How often this process has started the flow again.", *_FLOW
)
RUN_STARTED: Final = gauge("ottla_pipeline_run_started_seconds", "seconds since 1970", "Start of the run.", "run")

FAMILIES: Final = (*_OF_PROCESSES, *(value for value in list(globals().values()) if isinstance(value, Family)))

DECODING: Final = "decoding"
STATES: Final = (RUNNING, WAITING, STOPPED, FAILED, LEFT_OUT)


class RunMetrics:
    """The measurements of one run, which sets `record` and `queries` when it has them; the endpoint's threads read."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.record: RunRecord | None = None
        self.queries: Sequence[Supervised] = ()

    @contextmanager
    def serving(self, listeners: str) -> Iterator[None]:
        """Serve them at these addresses. Raises PipelineError."""
        with ExitStack() as stack:
            try:
                stack.enter_context(serving_metrics(listeners, self.gather, self.health))
            except (InvalidConfig, OSError) as problem:
                raise PipelineError(sentence(problem)) from None
            yield

    def health(self) -> Health:
        """Whether all flows run, or wait only for their next try."""
        record, queries = self.record, self.queries
        if record is None or not queries:
            return Health(["the run is starting: Spark starts, and its queries are planned"], [])
        reasons = [] if record.error is None else [record.error]
        warnings = []
        for each in queries:
            if each.state == FAILED:
                reasons.append(f"flow {each.name} has failed: {each.error}")
            elif each.state == WAITING:
                warnings.append(f"flow {each.name} waits for its next try: {each.error}")
        return Health(reasons, warnings)

    def gather(self, to: Measurements) -> None:
        """The figures of all flows."""
        if self.record is not None:
            to.add(RUN_STARTED, self.record.started_at, self._run)
        now = time.time()
        for each in self.queries:
            for state in STATES:
                to.add(STATE, each.state == state, self._run, each.name, state)
            to.add(RESTARTS, max(each.starts - 1, 0), self._run, each.name)
            measure(each.progress.figures, now, self._run, to)


def measure(figures: Figures, now: float, run: str, to: Measurements) -> None:
    """The figures of a flow at a time, in seconds since 1970."""
    labels = run, figures.flow
    for family, value in (
        (RECORDS, figures.records),
        (BATCHES, figures.batches),
        (RATE, figures.rate),
        (BATCH_DURATION, None if figures.batch_ms is None else figures.batch_ms / 1000),
        (LAG, figures.lag_records),
        (LAG_SECONDS, figures.lag_s),
        (WATERMARK_DELAY, _delay(figures.watermark, now)),
        (STATE_ROWS, figures.state_rows),
        (STATE_BYTES, figures.state_bytes),
        (LATE, figures.late),
        (CORRECTED, figures.corrected),
    ):
        if value is not None:
            to.add(family, value, *labels)
    by_check = dict(figures.rejected_by)
    for check, rows in by_check.items():
        to.add(DEAD_LETTERS, rows, *labels, check)
    undecodable = figures.rejected - sum(by_check.values())
    if undecodable > 0:
        to.add(DEAD_LETTERS, undecodable, *labels, DECODING)
    for view, expectations in dict(figures.expectations).items():
        for name, found in dict(expectations).items():
            to.add(EXPECTATIONS, found["rows"], *labels, view, name, found["otherwise"])


def _delay(watermark: str | None, now: float) -> float | None:
    return None if watermark is None else now - datetime.fromisoformat(watermark).timestamp()
