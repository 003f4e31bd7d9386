"""How cost grows with brokers and partitions: `python -m benches.growth_plot RESULT.json PLOT.svg`.

Prints a table as Markdown, and draws the plot.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from benches.benchmarks.growth import BROKERS, FIGURES, PARTITIONS
from benches.report import number

CONTESTANT: Final = "ottla"
PLOTTED: Final = ("created_s", "kept_kb", "idle_cpu_share", "cpu_s_per_gb")


def values(report: dict[str, Any]) -> dict[tuple[int, int], dict[str, float]]:
    """By brokers and partitions: every figure's median. What was not measured is left out."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for brokers in BROKERS:
        for partitions in PARTITIONS:
            measured = report["benchmarks"].get(f"growth-{brokers}x{partitions}")
            if measured is not None:
                found[brokers, partitions] = {
                    name: figure["contestants"][CONTESTANT]["median"]
                    for name, figure in measured["figures"].items()
                    if CONTESTANT in figure["contestants"]
                }
    return found


def table(found: dict[tuple[int, int], dict[str, float]]) -> str:
    """As Markdown, a row for each size."""
    titles = ["brokers", "partitions", *(f"{figure.title} ({figure.unit})" for figure in FIGURES)]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for (brokers, partitions), figures in found.items():
        cells = [str(brokers), f"{partitions:,}", *(number(figures[figure.name]) for figure in FIGURES)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(found: dict[tuple[int, int], dict[str, float]], path: Path) -> None:
    """A panel for each figure, a line for each number of brokers."""
    from matplotlib.figure import Figure as Drawing

    titles = {figure.name: f"{figure.title} ({figure.unit})" for figure in FIGURES}
    drawing = Drawing(figsize=(9, 6), layout="constrained")
    for axes, name in zip(drawing.subplots(2, 2).flat, PLOTTED, strict=True):
        for brokers in BROKERS:
            points = [
                (partitions, found[brokers, partitions][name])
                for partitions in PARTITIONS
                if (brokers, partitions) in found
            ]
            label = f"{brokers} broker{'s' if brokers > 1 else ''}"
            axes.plot(*zip(*points, strict=True), marker="o", label=label)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(titles[name], fontsize=9)
        axes.set_xlabel("partitions")
        axes.grid(alpha=0.3)
    drawing.axes[0].legend()
    drawing.savefig(path)


def main(arguments: list[str]) -> None:
    source, target = arguments
    found = values(json.loads(Path(source).read_text()))
    sys.stdout.write(table(found))
    plot(found, Path(target))


if __name__ == "__main__":
    main(sys.argv[1:])
