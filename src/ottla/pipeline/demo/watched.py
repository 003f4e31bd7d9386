"""A run of the job, as bars: one per flow, each as long as what the flow has to read."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.pipeline.demo.show import Bar, Screen

if TYPE_CHECKING:
    from ottla.pipeline.progress import Figures
    from ottla.pipeline.run_store import RunRecord

LABELS: Final = {
    "enriched": "clean, enrich, join",
    "flights.dead-letters": "dead letters",
    "history": "history -> Parquet",
    "delays": "delays -> topic",
    "alerts": "alerts -> topic",
    "hours": "hours -> plot",
}
"""The flows that are shown, in this order; the others find nothing to do."""


class Bars:
    """What a run of the job shows: an `ottla.pipeline.watch.Screen`."""

    def __init__(self, out: Screen, bars: Mapping[str, Bar]) -> None:
        self._out = out
        self._bars = bars
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Beside the bars: that Spark starts, which takes a while, or what a flow waits for."""
        self._out.say(f"  {text}")

    def line(self, figures: "Figures") -> None:
        """Nothing."""

    def figures(self, record: "RunRecord", figures: "Mapping[str, Figures]") -> None:
        for flow, bar in self._bars.items():
            found = figures.get(flow)
            if found is None or not found.records:
                continue
            now = time.monotonic()
            self._began.setdefault(flow, now)
            total = found.records + (found.lag_records or 0)
            if found.records < total or flow not in self._ended:
                self._ended[flow] = now
            notes = [f"{found.batches} {'batch' if found.batches == 1 else 'batches'}"]
            if found.rate:
                notes.append(f"{found.rate:,.0f}/s")
            if found.late:
                notes.append(f"{found.late:,} late")
            bar.reach(found.records, ", ".join(notes), total=total)

    def seconds(self) -> dict[str, float]:
        """How long each flow was at work, by its name."""
        return {flow: max(self._ended[flow] - began, 0.1) for flow, began in self._began.items()}


@contextmanager
def watched(out: Screen) -> Iterator[Bars]:
    with out.progress(*((label, 1) for label in LABELS.values())) as bars:
        yield Bars(out, dict(zip(LABELS, bars, strict=True)))
