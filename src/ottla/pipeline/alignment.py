"""Which flows of a job write a topic that is declared `aligned`, and how far their rows may be behind the watermark."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import Topic
from ottla.pipeline.job import Flow, Job
from ottla.pipeline.plan_state import hold_of
from ottla.pipeline.rows.aligned import Upstream
from ottla.pipeline.times import microseconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def upstream_of(
    job: Job, given: Topic, context: RunContext, rows_of: Callable[[Flow], "DataFrame"]
) -> tuple[Upstream, ...]:
    """The flows that write a topic; `rows_of` gives the rows of a flow. Raises JobError if there are none, or if nobody
    knows how long they hold rows."""
    writers = [flow for flow in job.flows.values() if isinstance(flow.to, Topic) and flow.to.name in given.topics]
    written = {flow.to.name for flow in writers if isinstance(flow.to, Topic)}
    for name in given.topics:
        if name not in written:
            raise JobError(
                f"topic({given.name!r}, aligned=...): no flow of the job writes {name!r}, so that there is no "
                "watermark to be aligned with; idle_after= and a longer delay are for topics of others"
            )
    assert context.checkpoints is not None
    return tuple(
        Upstream(flow.name, str((context.checkpoints / flow.name).absolute()), _hold_ms(given, flow, rows_of(flow)))
        for flow in writers
    )


def _hold_ms(given: Topic, flow: Flow, rows: "DataFrame") -> int:
    hold = hold_of(rows)
    if hold is None:
        raise JobError(
            f"topic({given.name!r}, aligned=...): flow {flow.name!r}, which writes it, has no watermark to be aligned "
            "with: give its rows one by rows.watermark"
        )
    if isinstance(given.aligned, str):
        us = microseconds(given.aligned)
        assert us is not None, "it was checked where it was given"
        return us // 1000
    if hold.ms is None:
        raise JobError(
            f"topic({given.name!r}, aligned=True): how far rows of flow {flow.name!r} may be behind its watermark is "
            f"not known, because of {hold.because}: say so by an interval, as in aligned='1 hour'"
        )
    return hold.ms
