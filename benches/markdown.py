"""The figures of a result file as Markdown, for docs/figures.md.

`python -m benches.markdown benches/results/FILE.json` prints them.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benches.contestants import BASELINE, CONTESTANTS
from benches.report import number


def markdown(report: dict[str, Any]) -> str:
    """Where and when it was measured, and a table of every figure that has a goal."""
    machine = report["machine"]
    lines = [
        f"Measured {report['date'][:10]} on {machine['cores']} cores ({machine['processor']}), "
        f"{machine['memory_gb']:.0f} GB, {machine['system']}; Kafka {machine['kafka']} with a heap of 1 GB, "
        f"broker and load on a core each.",
        "",
        "| figure | broker | value | Kafka | ratio | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    for benchmark in report["benchmarks"].values():
        for figure in benchmark["figures"].values():
            kafka = figure["contestants"].get(BASELINE)
            for name, found in figure["contestants"].items():
                if "goal" in found:
                    lines.append(_row(benchmark["title"], figure, CONTESTANTS[name].title, found, kafka))
    return "\n".join(lines) + "\n"


def _row(title: str, figure: dict[str, Any], broker: str, found: dict[str, Any], kafka: dict[str, Any] | None) -> str:
    goal = found["goal"]
    sign = "≥" if figure["better"] == "higher" else "≤"
    unit = " x" if goal["kind"] == "ratio" else f" {figure['unit']}"
    cells = (
        f"{title}: {figure['title']}",
        broker,
        f"{number(found['median'])} {figure['unit']}",
        f"{number(kafka['median'])}" if kafka else "",
        f"{found['ratio']:.2f} x" if "ratio" in found else "",
        f"{sign} {goal['limit']:g}{unit}",
        {True: "reached", False: "**missed**", None: ""}[goal["reached"]],
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown(json.loads(Path(sys.argv[1]).read_text())))
