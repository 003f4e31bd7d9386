"""How long a replay will take: the records that it has to read, at the rates of the job's earlier runs. PURE but for
`rates`, which reads files.

A run that has caught up reads no faster than records come. So only those moments count in which a flow had more to read
than it read in a second.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import Figures, history
from ottla.pipeline.run_store import run_directories


@dataclass(frozen=True, slots=True)
class FlowEstimate:
    """`records` to read, `rate` in records a second, None if it is unknown, as are `seconds` then."""

    records: int
    rate: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """`records` of all topics together, each counted once; flows read at the same time, so `seconds` are those of the
    slowest one, None if the rate of any is unknown."""

    records: int
    seconds: float | None
    flows: Mapping[str, FlowEstimate]

    @property
    def slowest(self) -> str | None:
        """The flow that decides about `seconds`."""
        if self.seconds is None or not self.flows:
            return None
        return max(self.flows, key=lambda name: self.flows[name].seconds or 0.0)


def estimate(
    reads: Mapping[str, Collection[str]], waiting: Mapping[str, int], known_rates: Mapping[str, float]
) -> Estimate:
    """`reads` are the topics of each flow, `waiting` the records of each topic; topics that are not in it, such as
    those that the replay writes itself, are left out."""
    flows = {}
    for name, topics in reads.items():
        records = sum(waiting.get(topic, 0) for topic in topics)
        if records:
            rate = known_rates.get(name)
            flows[name] = FlowEstimate(records, rate, None if rate is None else records / rate)
    seconds = [each.seconds for each in flows.values()]
    known = [each for each in seconds if each is not None]
    of_all = max(known, default=0.0) if len(known) == len(seconds) else None
    return Estimate(sum(waiting.values()), of_all, flows)


def busy_rate(lines: Iterable[Figures]) -> float | None:
    """The median rate of a flow while it had enough to read, in records a second; None if it never had."""
    found = [each.rate for each in lines if each.rate > 0 and (each.lag_records or 0) >= each.rate]
    return median(found) if found else None


def rates(home: Path, job: str) -> dict[str, float]:
    """The rates of a job's flows, by all runs of the home, as far as they are known."""
    lines: dict[str, list[Figures]] = {}
    for run in run_directories(home).values():
        try:
            if run.read().job != job:
                continue
        except PipelineError:  # not a run's
            continue
        for each in history(run.progress):
            lines.setdefault(each.flow, []).append(each)
    return {flow: rate for flow, each in lines.items() if (rate := busy_rate(each)) is not None}
