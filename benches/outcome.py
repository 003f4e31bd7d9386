"""What was measured, and the arithmetic on it: medians, and ratios pair by pair."""

import statistics
from dataclasses import dataclass, field
from typing import Any

from benches.contestants import BASELINE
from benches.model import Benchmark, Figure


@dataclass(slots=True)
class Outcome:
    """The samples of one benchmark: `rounds[n]` has the figures of each contestant measured in round n."""

    benchmark: Benchmark
    rounds: list[dict[str, dict[str, float]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def contestants(self) -> list[str]:
        """Those with at least one measurement, in the order of the first round that has them."""
        return list(dict.fromkeys(name for one in self.rounds for name in one))

    def samples(self, contestant: str, figure: str) -> list[float]:
        """The values of a figure, one a round."""
        return [one[contestant][figure] for one in self.rounds if contestant in one]

    def median(self, contestant: str, figure: str) -> float:
        """The median over the rounds."""
        return statistics.median(self.samples(contestant, figure))

    def ratio(self, contestant: str, figure: str) -> float | None:
        """The median over the rounds of the ratio to the baseline in the same round; None without a baseline."""
        if contestant == BASELINE:
            return None
        ratios = [
            one[contestant][figure] / one[BASELINE][figure]
            for one in self.rounds
            if contestant in one and BASELINE in one and one[BASELINE][figure]
        ]
        return statistics.median(ratios) if ratios else None

    def reached(self, contestant: str, figure: Figure) -> bool | None:
        """Whether the contestant's goal for this figure is reached; None without a goal or a comparison."""
        goal = figure.goals.get(contestant)
        if goal is None:
            return None
        return figure.reached(goal, self.median(contestant, figure.name), self.ratio(contestant, figure.name))

    def as_json(self) -> dict[str, Any]:
        """Medians, ratios, goals and every sample."""
        figures: dict[str, Any] = {}
        for figure in self.benchmark.figures:
            figures[figure.name] = {
                "title": figure.title,
                "unit": figure.unit,
                "better": figure.better,
                "contestants": {name: self._figure_json(name, figure) for name in self.contestants()},
            }
        return {
            "title": self.benchmark.title,
            "rounds": len(self.rounds),
            "failures": self.failures,
            "figures": figures,
        }

    def _figure_json(self, contestant: str, figure: Figure) -> dict[str, Any]:
        goal = figure.goals.get(contestant)
        found: dict[str, Any] = {
            "median": self.median(contestant, figure.name),
            "samples": self.samples(contestant, figure.name),
        }
        if (ratio := self.ratio(contestant, figure.name)) is not None:
            found["ratio"] = ratio
        if goal is not None:
            found["goal"] = {"kind": goal.kind, "limit": goal.limit, "reached": self.reached(contestant, figure)}
        return found
